#include "mantissa/models/initial_weights.h"

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "mantissa/base/random.h"
#include "mantissa/tensor/shapes_only.h"

namespace mantissa::models {

constexpr uint64_t kInitStream = 0x696e6974;  // one stream per parameter from here on

at::Tensor InitialWeights::normal(at::IntArrayRef shape, double deviation) {
  at::Tensor parameter = at::empty(shape, at::kFloat);
  const uint64_t stream = kInitStream + drawn_++;
  if (!tensor::is_shapes_only()) {
    Random random(seed_, stream);
    auto* values = parameter.mutable_data_ptr<float>();
    for (int64_t i = 0; i < parameter.numel(); ++i) {
      values[i] = static_cast<float>(deviation * random.normal());
    }
  }
  return parameter.to(device_).requires_grad_();
}

at::Tensor InitialWeights::weight(int64_t out, int64_t in, double scale) {
  return normal({out, in}, scale / std::sqrt(static_cast<double>(in)));
}

Linear InitialWeights::linear(int64_t out, int64_t in, double scale) {
  return {weight(out, in, scale), constant({out}, 0)};
}

at::Tensor InitialWeights::constant(at::IntArrayRef shape, double value) const {
  return at::full(shape, value, at::TensorOptions(at::kFloat).device(device_)).requires_grad_();
}

Norm InitialWeights::norm(int64_t width) const {
  return {constant({width}, 1), constant({width}, 0)};
}

}  // namespace mantissa::models
