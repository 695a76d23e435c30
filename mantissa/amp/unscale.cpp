#include "mantissa/amp/unscale.h"

#include <map>
#include <vector>

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

namespace mantissa::amp {

at::Tensor unscale_and_check_(at::TensorList gradients, const at::Tensor& scale, bool below_one) {
  std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;  // a fused pass takes one dtype
  for (const at::Tensor& gradient : gradients) {
    by_dtype[gradient.scalar_type()].push_back(gradient);
  }
  at::Tensor found_inf = at::zeros_like(scale);
  for (const auto& [dtype, same] : by_dtype) {
    // Multiplies and tests, so that each gradient is read once.
    at::_amp_foreach_non_finite_check_and_unscale_(same, found_inf, scale.reciprocal());
    if (below_one) {
      at::_amp_foreach_non_finite_check_and_unscale_(same, found_inf, at::ones_like(scale));
    }
  }
  return found_inf;
}

}  // namespace mantissa::amp
