#pragma once

namespace torch {
class Library;
}  // namespace torch

namespace mantissa::ops {

/// Overrides LibTorch's flash attention for CPU, forward and backward;
/// scaled_dot_product_attention arrives as these, or as bmm and baddbmm.
void register_attention(torch::Library& library);

}  // namespace mantissa::ops
