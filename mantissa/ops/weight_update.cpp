#include "mantissa/ops/weight_update.h"

#include <ATen/ops/empty_like.h>

#include "mantissa/ops/update_checks.h"

namespace mantissa::ops {

at::Tensor weights_of(const WeightUpdate& update) {
  const std::vector<float> weights = weights_reference(update);
  at::Tensor result = at::empty_like(pattern_of(update).detach(), at::kFloat);
  std::copy(weights.begin(), weights.end(), result.mutable_data_ptr<float>());
  return result;
}

}  // namespace mantissa::ops
