#include "mantissa/ops/gradient_pass.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>

#include "mantissa/base/error.h"
#include "mantissa/numerics/bit_pattern.h"
#include "mantissa/numerics/rounding.h"
#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/update_checks.h"

namespace mantissa::ops {
namespace {

// Dense in memory, in whatever order: neither answer depends on it but by rounding.
std::vector<at::Tensor> readable(at::TensorList gradients) {
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < gradients.size(); ++i) {
    check_gradient(gradients[i], at::kCPU, Place("gradient_pass", "gradient", i));
    const at::Tensor dense = to_strided(gradients[i]);
    result.push_back(dense.is_non_overlapping_and_dense() ? dense : dense.contiguous());
  }
  return result;
}

GradientPass conclude(double sum_of_squares, float inverse_scale, bool any) {
  const bool usable_scale = std::isfinite(inverse_scale) && inverse_scale != 0;
  const bool found_inf = any && (!std::isfinite(sum_of_squares) || !usable_scale);
  double norm = std::sqrt(sum_of_squares);
  if (!found_inf) {
    norm = std::min(norm, static_cast<double>(std::numeric_limits<float>::max()));
  }
  const auto fp32 = at::TensorOptions(at::kFloat);
  return {at::full({}, found_inf ? 1.0 : 0.0, fp32), at::full({}, norm, fp32)};
}

GradientStatistics statistics_of(const cpu::GradientSums& sums, int64_t count) {
  const auto& [zero, subnormal, fp16_zero, fp16_subnormal, fp16_finite, finite] = sums.below;
  GradientStatistics result;
  result.count = count;
  result.zeros = zero;
  result.non_finite = count - finite;
  result.fp32_subnormal = subnormal - zero;
  result.fp16_zero = fp16_zero - zero;
  result.fp16_subnormal = fp16_subnormal - fp16_zero;
  result.fp16_infinite = finite - fp16_finite;
  result.largest = std::bit_cast<float>(sums.largest);
  const auto smallest = std::bit_cast<float>(sums.smallest_minus_1 + 1);
  result.smallest = std::isfinite(smallest) ? smallest : 0;
  result.norm = std::sqrt(sums.squares);
  return result;
}

void count_reference(float value, GradientStatistics& statistics) {
  using numerics::Format;
  using numerics::NumberClass;
  ++statistics.count;
  const NumberClass in_fp32 = numerics::classify(Format::fp32, std::bit_cast<uint32_t>(value));
  if (in_fp32 == NumberClass::zero) {
    ++statistics.zeros;
    return;
  }
  if (in_fp32 == NumberClass::infinity || in_fp32 == NumberClass::nan) {
    ++statistics.non_finite;
    return;
  }
  const NumberClass in_fp16 =
      numerics::classify(Format::fp16, numerics::encode(Format::fp16, value));
  statistics.fp32_subnormal += static_cast<int64_t>(in_fp32 == NumberClass::subnormal);
  statistics.fp16_zero += static_cast<int64_t>(in_fp16 == NumberClass::zero);
  statistics.fp16_subnormal += static_cast<int64_t>(in_fp16 == NumberClass::subnormal);
  statistics.fp16_infinite += static_cast<int64_t>(in_fp16 == NumberClass::infinity);
  const float magnitude = std::fabs(value);
  statistics.largest = std::max(statistics.largest, magnitude);
  statistics.smallest =
      statistics.smallest == 0 ? magnitude : std::min(statistics.smallest, magnitude);
}

}  // namespace

GradientPass gradient_pass(at::TensorList gradients, const at::Tensor& scale,
                           std::vector<GradientStatistics>* statistics) {
  const float inverse_scale = inverse_of_scale(scale, "gradient_pass");
  const std::vector<at::Tensor> tensors = readable(gradients);
  std::vector<cpu::GradientView> views;
  views.reserve(tensors.size());
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    views.push_back({tensor.const_data_ptr(), tensor.scalar_type(), tensor.numel()});
    count += tensor.numel();
  }
  const std::vector<cpu::GradientSums> sums =
      cpu::gradient_sums(views, inverse_scale, statistics != nullptr);
  double squares = 0;
  for (const cpu::GradientSums& sum : sums) {
    squares += sum.squares;
  }
  if (statistics != nullptr) {
    statistics->clear();
    for (size_t i = 0; i < sums.size(); ++i) {
      statistics->push_back(statistics_of(sums[i], views[i].count));
    }
  }
  return conclude(squares, inverse_scale, count > 0);
}

GradientPass gradient_pass_reference(at::TensorList gradients, const at::Tensor& scale,
                                     std::vector<GradientStatistics>* statistics) {
  const float inverse_scale = inverse_of_scale(scale, "gradient_pass");
  double squares = 0;
  int64_t count = 0;
  std::vector<GradientStatistics> each;
  for (const at::Tensor& tensor : readable(gradients)) {
    const at::Tensor flat = tensor.to(at::kFloat).contiguous();
    double own_squares = 0;
    each.emplace_back();
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const float value = flat.const_data_ptr<float>()[i] * inverse_scale;
      own_squares += static_cast<double>(value) * value;
      count_reference(value, each.back());
    }
    each.back().norm = std::sqrt(own_squares);
    squares += own_squares;
    count += flat.numel();
  }
  if (statistics != nullptr) {
    *statistics = std::move(each);
  }
  return conclude(squares, inverse_scale, count > 0);
}

}  // namespace mantissa::ops
