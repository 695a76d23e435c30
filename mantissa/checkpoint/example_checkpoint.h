#pragma once

// For tests: a small checkpoint of every kind of value, different for each step.

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "mantissa/checkpoint/checkpoint.h"

namespace mantissa::checkpoint {

inline Checkpoint example_checkpoint(int64_t step) {
  Checkpoint checkpoint{.step = step};
  checkpoint.environment = {{"torch", "2.13.0"}, {"threads", "2"}};
  tensor::StateDict& state = checkpoint.state;
  state.set("model.weight", at::arange(3, at::kFloat).add(static_cast<double>(step)));
  state.set("model.half", at::full({2}, 0.5, at::kBFloat16));
  state.set("optimizer.empty", at::zeros({0, 3}, at::kLong));
  state.set("scale", 0.1 * static_cast<double>(step));
  state.set("loss", -std::numeric_limits<double>::infinity());
  state.set("sampler.position", std::numeric_limits<int64_t>::max() - step);
  state.set("kind", std::string("adamw \xC3\xA9\n"));
  return checkpoint;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

inline bool same(const Checkpoint& a, const Checkpoint& b) {
  if (a.step != b.step || a.environment != b.environment ||
      a.state.scalars() != b.state.scalars() ||
      a.state.tensors().size() != b.state.tensors().size()) {
    return false;
  }
  for (const auto& [name, tensor] : a.state.tensors()) {
    if (!b.state.contains(name) || !same_bits(tensor, b.state.tensor(name))) {
      return false;
    }
  }
  return true;
}

}  // namespace mantissa::checkpoint
