#pragma once

#include <cstdint>

#include "mantissa/base/api.h"
#include "mantissa/ops/cpu/right_angle_plan.h"

/// Convolutions and correlations of rows of plan.size() numbers in FP32, by right-angle transforms.
/// Spectra have 2 plan.size() numbers, in an order of their own, and so has each `work`.
namespace mantissa::ops::cpu {

/// Of a filter, divided by the size.
MANTISSA_API void filter_spectrum(const RightAnglePlan& plan, const float* filter, float* work,
                                  float* spectrum);

/// out[t] = sum over s of filter[s] x[t - s]. `out` may be x.
MANTISSA_API void convolve(const RightAnglePlan& plan, const float* spectrum, const float* x,
                           float* work, float* out);

/// out[s] = sum over t of grad[t] filter[t - s].
MANTISSA_API void correlate(const RightAnglePlan& plan, const float* spectrum, const float* grad,
                            float* work, float* out);

/// As `correlate`, not where `out` is null; and the spectrum of sum over t of grad[t] x[t - s] is
/// added to `sum`. `more_work` is another `work`.
MANTISSA_API void correlate_both(const RightAnglePlan& plan, const float* spectrum,
                                 const float* grad, const float* x, float* work, float* more_work,
                                 float* sum, float* out);

/// Of a sum of `correlate_both`.
MANTISSA_API void filter_gradient(const RightAnglePlan& plan, const float* sum, float* work,
                                  float* out);

}  // namespace mantissa::ops::cpu
