#include "mantissa/ops/weight_update.h"

#include <ATen/core/grad_mode.h>

#include "mantissa/ops/composed/weights.h"

namespace mantissa::ops {

at::Tensor weights_of(const WeightUpdate& update) {
  const at::NoGradGuard no_grad;
  const at::Tensor weights = composed::load_weights(update);
  return update.master.defined() ? weights.clone() : weights;
}

}  // namespace mantissa::ops
