#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace mantissa::models {

/// The weight and bias of a normalization, each (D).
struct Norm {
  at::Tensor weight, bias;
};

/// weight (out, in); bias (out), undefined where there is none.
struct Linear {
  at::Tensor weight, bias;
};

/// Draws the parameters of a model one after the other, FP32, each from a random stream of its own:
/// the seed decides every number, bit for bit, for any number of threads and any device. Within
/// tensor::ShapesOnly none is drawn.
class InitialWeights {
 public:
  InitialWeights(uint64_t seed, at::Device device) : seed_(seed), device_(device) {}

  /// N(0, deviation^2).
  at::Tensor normal(at::IntArrayRef shape, double deviation);

  /// (out, in), N(0, scale^2 / in), which keeps the variance of `in` inputs of variance one (LeCun
  /// et al., Efficient BackProp, 1998).
  at::Tensor weight(int64_t out, int64_t in, double scale = 1);

  /// Such a weight and a bias of zeros.
  Linear linear(int64_t out, int64_t in, double scale = 1);

  at::Tensor constant(at::IntArrayRef shape, double value) const;
  Norm norm(int64_t width) const;

 private:
  uint64_t seed_;
  at::Device device_;
  uint64_t drawn_ = 0;  // parameters
};

}  // namespace mantissa::models
