#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__HIPCC__)
#include <hip/hip_runtime.h>  // memcpy and mathematics of the device
#endif
#if defined(__CUDACC__) || defined(__HIPCC__)
#define MANTISSA_EVERYWHERE __host__ __device__ inline
#else
#define MANTISSA_EVERYWHERE inline
#endif

/// What the device passes do to one element, on a device and on the host alike, where tests hold it
/// to the kernels for CPUs bit for bit. Roundings are done on bit patterns, not by instructions of
/// one device. Compile with fused multiply-adds off (nvcc --fmad=false, clang and g++
/// -ffp-contract=off): the kernels for CPUs round each product.
namespace mantissa::ops::cuda {

enum class Storage : uint8_t { fp32, bf16, fp16 };

MANTISSA_EVERYWHERE uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

MANTISSA_EVERYWHERE float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

MANTISSA_EVERYWHERE bool is_finite(float value) {
  return (bits_of(value) & 0x7FFFFFFFU) < 0x7F800000U;
}

/// As numerics::decode.
MANTISSA_EVERYWHERE float decode(Storage storage, uint16_t pattern) {
  if (storage == Storage::bf16) {
    return float_of(static_cast<uint32_t>(pattern) << 16);
  }
  const uint32_t sign = (pattern & 0x8000U) << 16;
  const uint32_t magnitude = pattern & 0x7FFFU;
  if (magnitude >= 0x7C00U) {  // infinity or NaN, which is made quiet
    const uint32_t quiet = magnitude > 0x7C00U ? 0x400000U : 0;
    return float_of(sign | 0x7F800000U | quiet | (magnitude << 13 & 0x7FFFFFU));
  }
  if (magnitude < 0x400U) {
    return float_of(sign | bits_of(static_cast<float>(magnitude) * 0x1p-24F));
  }
  return float_of(sign | ((magnitude << 13) + (112U << 23)));
}

/// Whether what `fraction`, in units of 2^-32 of the last kept place, cuts off rounds away from
/// zero: to nearest even, or by `random` bits.
MANTISSA_EVERYWHERE bool rounds_up(uint32_t kept, uint32_t fraction, bool stochastic,
                                   uint32_t random) {
  if (stochastic) {
    return fraction + random < fraction;  // the sum has a carry
  }
  return fraction > 0x80000000U || (fraction == 0x80000000U && (kept & 1) != 0);
}

/// As numerics::encode with Rounding::nearest_even or, with `stochastic`, Rounding::stochastic.
MANTISSA_EVERYWHERE uint16_t encode(Storage storage, float value, bool stochastic = false,
                                    uint32_t random = 0) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = bits >> 16 & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return storage == Storage::bf16 ? 0x7FC0 : 0x7E00;
  }
  if (storage == Storage::bf16) {
    const uint32_t kept = magnitude >> 16;
    const bool up = rounds_up(kept, magnitude << 16, stochastic, random);
    return static_cast<uint16_t>(sign | (kept + (up ? 1 : 0)));
  }
  if (magnitude == 0x7F800000U) {
    return static_cast<uint16_t>(sign | 0x7C00U);
  }
  // significand * 2^(exponent - 150)
  const uint32_t field = magnitude >> 23;
  const uint32_t exponent = field == 0 ? 1 : field;
  const uint32_t significand = (magnitude & 0x7FFFFFU) | (field == 0 ? 0 : 0x800000U);
  const bool is_normal = exponent >= 113;
  const uint32_t shift = is_normal ? 13 : 13 + (113 - exponent);
  const uint32_t kept =
      (is_normal ? (exponent - 113) << 10 : 0) + (shift < 32 ? significand >> shift : 0);
  const uint32_t fraction = shift <= 32  ? significand << (32 - shift)
                            : shift < 64 ? significand >> (shift - 32)
                                         : 0;
  const uint32_t rounded = kept + (rounds_up(kept, fraction, stochastic, random) ? 1 : 0);
  return static_cast<uint16_t>(sign | (rounded < 0x7C00U ? rounded : 0x7C00U));
}

/// Four words of the stream Random(seed, stream), from word 4 * index on: Philox4x32-10, as
/// base/random.h.
struct RandomWords {
  uint32_t words[4];
};

MANTISSA_EVERYWHERE RandomWords random_words(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t c0 = static_cast<uint32_t>(index);
  uint32_t c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream);
  uint32_t c3 = static_cast<uint32_t>(stream >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed);
  uint32_t k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53U} * c0;
    const uint64_t product1 = uint64_t{0xCD9E8D57U} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

/// As split_weight() and join_weight() of split_weight.h.
struct SplitHalves {
  uint16_t model;
  int16_t rest;
};

MANTISSA_EVERYWHERE SplitHalves split(float value) {
  const uint32_t bits = bits_of(value);
  if (value != value) {
    return {0x7FC0, 0};
  }
  const uint32_t rounded = (bits + 0x8000U) >> 16;
  return {static_cast<uint16_t>(rounded),
          static_cast<int16_t>(static_cast<uint16_t>(bits - (rounded << 16)))};
}

MANTISSA_EVERYWHERE float join(uint16_t model, int16_t rest) {
  return float_of((static_cast<uint32_t>(model) << 16) +
                  static_cast<uint32_t>(static_cast<int32_t>(rest)));
}

/// (1 / scale) rounded once; what a gradient is multiplied by before it is clipped.
MANTISSA_EVERYWHERE float inverse_of(float scale) {
  return static_cast<float>(1.0 / static_cast<double>(scale));
}

/// FP32 constants of one parameter in one step.
struct StepConstants {
  float gradient_factor;           // (1 / scale) * clip_factor
  float step_size;                 // AdamW: lr / (1 - beta1^step); SGD: lr
  float inverse_sqrt_correction2;  // AdamW: 1 / sqrt(1 - beta2^step)
  float coupled_decay;             // added to the gradient
  float decoupled_decay;           // lr * weight_decay, taken off the weight
};

struct AdamwFactors {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
};

/// As ops::adamw_reference_, operation by operation.
MANTISSA_EVERYWHERE void adamw(float gradient, float& weight, float& first, float& second,
                               const StepConstants& step, const AdamwFactors& factors) {
  const float g = (gradient * step.gradient_factor) + (step.coupled_decay * weight);
  first = (factors.beta1 * first) + (factors.one_minus_beta1 * g);
  second = (factors.beta2 * second) + ((factors.one_minus_beta2 * g) * g);
  const float root = sqrtf(second) * step.inverse_sqrt_correction2;
  const float decrement =
      (step.step_size * (first / (root + factors.eps))) + (step.decoupled_decay * weight);
  weight = weight - decrement;
}

struct SgdFactors {
  float momentum;
  float lookahead;  // 0 for classic momentum, `momentum` for Nesterov's
};

/// As ops::sgd_reference_.
MANTISSA_EVERYWHERE void sgd(float gradient, float& weight, float* momentum,
                             const StepConstants& step, const SgdFactors& factors) {
  float direction = (gradient * step.gradient_factor) + (step.coupled_decay * weight);
  if (momentum != nullptr) {
    *momentum = (factors.momentum * *momentum) + direction;
    direction = factors.lookahead != 0 ? direction + (factors.lookahead * *momentum) : *momentum;
  }
  weight = weight - ((step.step_size * direction) + (step.decoupled_decay * weight));
}

/// 1 - beta^step from ln beta, as adamw_composed_ takes it: FP64.
MANTISSA_EVERYWHERE double bias_correction(double log_beta, int64_t step) {
  return -expm1(static_cast<double>(step) * log_beta);
}

}  // namespace mantissa::ops::cuda
