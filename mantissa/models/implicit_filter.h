#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/models/initial_weights.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::models {

/// Of the filters of Hyena (Poli et al., 2023), whose taps a small network gives as functions of
/// their position. The defaults are those of HyenaDNA (Nguyen et al., 2023).
struct ImplicitFilterOptions {
  int64_t positions = 1026;    // P: taps that the filters are made for
  int64_t width = 64;          // F: of the network's hidden layers
  int64_t layers = 2;          // between its first one and its last
  int64_t bands = 2;           // pairs of a cosine and a sine of the position
  double frequency = 10;       // of its sines, in the beginning
  double slow_decay = 1.5;     // of the window: the share of P at which the slowest channel has
  double fast_decay = 0.3;     // fallen to decay_target, and the fastest
  double decay_target = 1e-2;  // above 0, below 1
  double decay_shift = 0;      // added to the window; 0.05 in HyenaDNA's published weights
};

/// What filters of T taps read that is no parameter: the same for all of a model.
struct FilterPositions {
  at::Tensor features;  // (T, 1 + 2 bands)
  at::Tensor window;    // (T, C)
};

/// C filters:
///
///     h = sin(frequency * linear(features)), `layers` more of these, and a linear layer to C
///     filter[c][t] = h[t][c] (exp(-d_c t / (P - 1)) + decay_shift)
///
/// with d_c in equal steps from -ln(decay_target) / slow_decay to -ln(decay_target) / fast_decay.
/// The features of position t are t / (P - 1), and for each of `bands` frequencies f in equal steps
/// from 1e-4 to bands - 1, cos(2 pi f t / P) of all and then -sin(2 pi f t / P) of all. One
/// `frequency` (F), which is trained, serves all layers.
///
/// Weights start at N(0, 0.02^2), biases at 0.
class ImplicitFilter {
 public:
  ImplicitFilter(const ImplicitFilterOptions& options, int64_t channels, InitialWeights& weights);

  /// (T, C); tap t of filter c is [t][c].
  at::Tensor operator()(const FilterPositions& positions) const;

  /// Appends its parameters, with names that begin with `label`.
  void append_to(tensor::ParameterList& list, const std::string& label) const;

  at::ScalarType dtype() const { return last_.scalar_type(); }

 private:
  std::vector<Linear> layers_;
  at::Tensor last_;       // (C, F)
  at::Tensor frequency_;  // (F)
};

/// Throws InvalidArgument, beginning with `model`, for a value out of range.
MANTISSA_API void check(const std::string& model, const ImplicitFilterOptions& options);

/// The features of all positions (P, 1 + 2 bands): from FP64 rounded once, to FP32, or FP64 where
/// `dtype` is. In a 16-bit format neighbouring positions of a long filter would be equal.
MANTISSA_API at::Tensor position_features(const ImplicitFilterOptions& options,
                                          at::ScalarType dtype);

/// The windows of the first `length` taps (length, C): FP32, or FP64 where `dtype` is.
MANTISSA_API at::Tensor decay_window(const ImplicitFilterOptions& options, int64_t channels,
                                     int64_t length, at::ScalarType dtype, at::Device device);

}  // namespace mantissa::models
