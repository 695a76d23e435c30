#include "mantissa/optim/clip.h"

#include <cmath>

#include "mantissa/base/error.h"

namespace mantissa::optim {

at::Tensor clip_factor(const at::Tensor& norm, double max_norm) {
  MANTISSA_CHECK(std::isfinite(max_norm) && max_norm > 0, InvalidArgument,
                 "clip_factor: max_norm is ", max_norm,
                 "; it must be finite and positive, or clipping be left out");
  MANTISSA_CHECK(norm.scalar_type() == at::kFloat && norm.dim() == 0, InvalidArgument,
                 "clip_factor: norm is ", norm.scalar_type(), " of shape ", norm.sizes(),
                 "; pass the 0-d Float norm of the unscaled gradients");
  return norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0);
}

}  // namespace mantissa::optim
