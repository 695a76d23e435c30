#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
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

/// Patterns of magnitudes, as GradientStatistics counts them; below the last one all are finite.
inline constexpr std::array<uint32_t, 6> kMagnitudeThresholds = {
    1,                                             // zero
    std::bit_cast<uint32_t>(0x1p-126F),            // subnormal
    std::bit_cast<uint32_t>(0x1p-25F) + 1,         // zero in FP16: half of its smallest number
    std::bit_cast<uint32_t>(0x1p-14F - 0x1p-25F),  // subnormal in FP16; a tie goes to 2^-14
    std::bit_cast<uint32_t>(65520.0F),             // finite in FP16; a tie goes to infinity
    std::bit_cast<uint32_t>(std::numeric_limits<float>::infinity()),
};

/// Of the products gradient * inverse_scale, in FP32.
struct GradientSums {
  double squares = 0;  // in FP64, finite if all products are
  std::array<int64_t, kMagnitudeThresholds.size()> below = {};  // how many are below a threshold
  uint32_t largest = 0;                    // pattern of the largest finite magnitude
  uint32_t smallest_minus_1 = 0xFFFFFFFF;  // of the smallest that is not 0, less 1
};

/// One for each gradient; all but the squares only if `counting`. In parallel; the result depends
/// neither on the number of threads nor on the instruction set.
std::vector<GradientSums> gradient_sums(const std::vector<GradientView>& gradients,
                                        float inverse_scale, bool counting);

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
