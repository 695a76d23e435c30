#pragma once

#include <cstdint>

/// Rows of LayerNorm (Ba et al., 2016) and RMSNorm (Zhang and Sennrich, 2019) in FP32, contiguous.
/// Sums over a row are taken in 16 parts on every processor.
namespace mantissa::ops::cpu {

void add(const float* a, const float* b, int64_t count, float* sum);

enum class NormKind : uint8_t { layer, rms };

struct NormRows {
  NormKind kind;
  const float* x;
  const float* weight;
  const float* bias;  // or null
  float eps;
  int64_t rows;
  int64_t width;
  float* out;
  float* mean;  // of each row; unused by rms
  float* rstd;  // 1 / sqrt(variance + eps), or of the mean square
};

void norm_rows(const NormRows& in);

struct NormGradientRows {
  NormKind kind;
  const float* x;
  const float* grad_out;
  const float* grad_more;  // added to the gradient of x; or null
  const float* weight;
  const float* mean;
  const float* rstd;
  int64_t rows;
  int64_t width;
  float* grad_x;
  float* grad_weight;  // added to, as grad_bias; both or none are null
  float* grad_bias;
};

void norm_gradient_rows(const NormGradientRows& in);

}  // namespace mantissa::ops::cpu
