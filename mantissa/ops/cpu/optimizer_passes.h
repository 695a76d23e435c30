#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include <c10/core/ScalarType.h>

#include "mantissa/numerics/rounding.h"
#include "mantissa/ops/block_quantization.h"

namespace mantissa::ops::cpu {

struct GradientView {
  const void* data;  // FP32, BF16 or FP16
  c10::ScalarType dtype;
  int64_t count;
};

/// Sum of (gradient * inverse_scale)^2 over all elements: the product in FP32, its square and the
/// sum in FP64. It is finite exactly when every product is. In parallel; the result does not
/// depend on the number of threads.
double sum_of_unscaled_squares(const std::vector<GradientView>& gradients, float inverse_scale);

/// See ops::WeightUpdate. Null pointers for what is undefined there.
struct WeightView {
  float* master;
  void* model;
  c10::ScalarType model_dtype;
  void* rest;
  bool rest_is_bits;
  numerics::Rounding rounding;
  uint64_t seed;
  uint64_t stream;
  std::atomic<int64_t>* lost;
  GradientView gradient;
};

/// See ops::Moment. Null pointers for what is undefined there.
struct MomentView {
  void* values;
  c10::ScalarType dtype;
  float* scales;
  CodeMap map;
  uint64_t seed;
  uint64_t stream;
};

struct AdamwView {
  WeightView weight;
  MomentView exp_avg;
  MomentView exp_avg_sq;
  float step_size;                 // lr / (1 - beta1^step)
  float inverse_sqrt_correction2;  // 1 / sqrt(1 - beta2^step)
  float coupled_decay;             // weight decay added to the gradient
  float decoupled_decay;           // lr * weight decay, taken off the weight
};

struct AdamwConstants {
  float gradient_factor;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float eps;
};

void adamw(const std::vector<AdamwView>& parameters, const AdamwConstants& constants);

struct SgdView {
  WeightView weight;
  MomentView momentum;  // null without momentum
  float lr;
  float coupled_decay;    // weight decay added to the gradient
  float decoupled_decay;  // lr * weight decay, taken off the weight
};

struct SgdConstants {
  float gradient_factor;
  float momentum;
  float lookahead;  // 0 for classic momentum, `momentum` for Nesterov's
};

void sgd(const std::vector<SgdView>& parameters, const SgdConstants& constants);

struct EmaView {
  WeightView weight;
  float* shadow;
  int64_t count;
};

void ema(const std::vector<EmaView>& parameters, float rate);

}  // namespace mantissa::ops::cpu
