#pragma once

#include <algorithm>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "mantissa/numerics/error_bound.h"
#include "mantissa/tensor/dtype.h"

/// For tests: how far a result computed in FP32 and rounded once may be from the exact one.
namespace mantissa::ops {

inline constexpr double kFp32Roundoff = 0x1p-24;

/// Of FP32 roundings in a row, in any order of summation.
inline double gamma(double roundings) {
  return numerics::gamma(static_cast<int64_t>(roundings), kFp32Roundoff);
}

/// `error` before the one rounding to `dtype`, and that rounding. FP64 tensors.
inline at::Tensor after_rounding(const at::Tensor& error, const at::Tensor& exact,
                                 at::ScalarType dtype) {
  const numerics::Format format = tensor::format_of(dtype);
  return error.add(exact.abs().add(error).mul(numerics::unit_roundoff(format)))
      .add(numerics::underflow_error(format));
}

/// A sum of `terms` products whose absolute values add up to `magnitude`: each product and each
/// addition rounds once.
inline at::Tensor sum_bound(const at::Tensor& exact, const at::Tensor& magnitude, double terms,
                            at::ScalarType dtype) {
  return after_rounding(magnitude.mul(gamma(terms + 1)), exact, dtype);
}

/// Every element of `actual` within `bound` of `exact`; both FP64, NaN and infinity never are.
inline void expect_within(const at::Tensor& actual, const at::Tensor& exact,
                          const at::Tensor& bound) {
  ASSERT_EQ(actual.sizes(), exact.sizes());
  if (actual.numel() == 0) {
    return;
  }
  const at::Tensor error = actual.to(at::kDouble).sub(exact).abs();
  const at::Tensor excess = error.div(bound.expand_as(error)).nan_to_num(INFINITY);
  EXPECT_LE(excess.max().item<double>(), 1.0)
      << "largest error " << error.max().item<double>() << ", in units of its bound above";
}

/// Normal numbers of `dtype`, seeded.
inline at::Tensor random(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::randn(sizes, at::kFloat).to(dtype);
}

/// What LibTorch says when `call` fails; empty when it does not.
template <typename Call>
std::string failure_of(const Call& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

}  // namespace mantissa::ops
