#pragma once

namespace torch {
class Library;
}  // namespace torch

namespace mantissa::ops {

/// Overrides convolution and convolution_backward; conv1d to conv3d, the transposed ones and their
/// gradients arrive as these.
void register_convolution(torch::Library& library);

}  // namespace mantissa::ops
