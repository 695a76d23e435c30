// Shapes: T taps of P, C filters, F width of the network.
#include "mantissa/models/implicit_filter.h"

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sin.h>

#include "mantissa/base/error.h"
#include "mantissa/models/residual_stack.h"
#include "mantissa/tensor/shapes_only.h"

namespace mantissa::models {
namespace {

constexpr double kDeviation = 0.02;
constexpr double kLowestFrequency = 1e-4;

// The i-th of `count` numbers in equal steps.
double between(double first, double last, int64_t i, int64_t count) {
  return count == 1
             ? first
             : first + (last - first) * static_cast<double>(i) / static_cast<double>(count - 1);
}

// FP64 where `dtype` is, else FP32, rounded once.
template <typename Number>
at::Tensor table(int64_t rows, int64_t columns, at::ScalarType dtype, const Number& number) {
  at::Tensor result = at::empty({rows, columns}, at::kDouble);
  if (!tensor::is_shapes_only()) {
    auto* values = result.mutable_data_ptr<double>();
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        *values++ = number(row, column);
      }
    }
  }
  return dtype == at::kDouble ? result : result.to(at::kFloat);
}

}  // namespace

void check(const std::string& model, const ImplicitFilterOptions& o) {
  require_positive(model, o.positions, "positions");
  require_positive(model, o.width, "filter width");
  require_positive(model, o.layers + 1, "filter layers + 1");
  require_positive(model, o.bands, "filter bands");
  const auto positive = [&](double value, const char* name) {
    MANTISSA_CHECK(value > 0 && std::isfinite(value), InvalidArgument, model, ": ", name, " is ",
                   value, "; it must be positive");
  };
  positive(o.frequency, "filter frequency");
  positive(o.slow_decay, "slow_decay");
  positive(o.fast_decay, "fast_decay");
  MANTISSA_CHECK(o.decay_target > 0 && o.decay_target < 1, InvalidArgument, model,
                 ": decay_target is ", o.decay_target, "; it must be above 0 and below 1");
  MANTISSA_CHECK(o.decay_shift >= 0 && std::isfinite(o.decay_shift), InvalidArgument, model,
                 ": decay_shift is ", o.decay_shift, "; it must not be negative");
}

at::Tensor position_features(const ImplicitFilterOptions& o, at::ScalarType dtype) {
  return table(o.positions, 1 + 2 * o.bands, dtype, [&](int64_t t, int64_t column) {
    if (column == 0) {
      return between(0, 1, t, o.positions);
    }
    const double frequency = between(kLowestFrequency, static_cast<double>(o.bands - 1),
                                     (column - 1) % o.bands, o.bands);
    const double angle =
        2 * M_PI * frequency * static_cast<double>(t) / static_cast<double>(o.positions);
    return column <= o.bands ? std::cos(angle) : -std::sin(angle);
  });
}

at::Tensor decay_window(const ImplicitFilterOptions& o, int64_t channels, int64_t length,
                        at::ScalarType dtype, at::Device device) {
  const double slow = std::log(o.decay_target) / o.slow_decay;
  const double fast = std::log(o.decay_target) / o.fast_decay;
  const at::Tensor times = table(length, 1, dtype, [&](int64_t t, int64_t /*column*/) {
    return between(0, 1, t, o.positions);
  });
  const at::Tensor decays = table(1, channels, dtype, [&](int64_t /*row*/, int64_t c) {
    return between(slow, fast, c, channels);
  });
  return at::exp(times.to(device).mul(decays.to(device))).add(o.decay_shift);
}

ImplicitFilter::ImplicitFilter(const ImplicitFilterOptions& options, int64_t channels,
                               InitialWeights& weights) {
  int64_t inputs = 1 + 2 * options.bands;
  for (int64_t i = 0; i <= options.layers; ++i) {
    layers_.push_back({weights.normal({options.width, inputs}, kDeviation),
                       weights.constant({options.width}, 0)});
    inputs = options.width;
  }
  last_ = weights.normal({channels, options.width}, kDeviation);
  frequency_ = weights.constant({options.width}, options.frequency);
}

at::Tensor ImplicitFilter::operator()(const FilterPositions& positions) const {
  at::Tensor x = positions.features;
  for (const Linear& layer : layers_) {
    x = at::sin(frequency_.mul(apply(layer, x)));
  }
  return at::linear(x, last_).mul(positions.window);
}

void ImplicitFilter::append_to(tensor::ParameterList& list, const std::string& label) const {
  for (size_t i = 0; i < layers_.size(); ++i) {
    append(list, label + ".layers." + std::to_string(i), layers_[i]);
  }
  list.push_back({label + ".last.weight", last_});
  list.push_back({label + ".frequency", frequency_});
}

}  // namespace mantissa::models
