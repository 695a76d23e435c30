#pragma once

namespace torch {
class Library;
}  // namespace torch

namespace mantissa::ops {

/// Overrides mm, addmm, bmm, baddbmm, _addmm_activation, addmv, dot, vdot and addr, with their out=
/// and in-place forms; mv, matmul, linear, einsum and addr_ arrive as these.
void register_matmul(torch::Library& library);

}  // namespace mantissa::ops
