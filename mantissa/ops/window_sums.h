#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"
#include "mantissa/ops/windows.h"

/// Convolutions as sums over windows, in FP32 with one rounding at the end, in bounded memory.
namespace mantissa::ops {

/// A filter has `rows` results and reads `channels`, in each group; strides count numbers.
struct Filter {
  void* data;
  numerics::Format format;
  int64_t group_stride;
  int64_t row_stride;
  int64_t channel_stride;
  std::array<int64_t, kAxes> strides;  // of taps
};

/// How many images, groups, and channels a group on both sides.
struct Extent {
  int64_t batch;
  int64_t groups;
  int64_t rows;      // of the result
  int64_t channels;  // of the source
};

/// result[n, g, r, o] = bias[g, r] + sum over c and t of
///                      filter[g, r, c, t] * source[n, g, c, o * step + offset(t)].
///
/// This is the forward pass of a convolution, and the backward pass by its input: that is one such
/// sum for each remainder of a position by the stride, with the taps that reach it.
struct WindowSums {
  Extent extent;
  Axes axes;
  Image source;
  Filter filter;
  const float* bias = nullptr;  // for all groups
  Image result;                 // its format is bf16, fp16 or fp32
};

/// gradient[g, r, c, t] = sum over n and o of sums[n, g, r, o] * source[n, g, c, o * step +
/// offset(t)].
struct FilterGradient {
  Extent extent;
  Axes axes;
  Image source;
  Image sums;
  Filter gradient;
};

/// Both take sums by fused multiply-adds, and the results depend neither on the number of threads
/// nor, where there are fused multiply-adds, on the processor. Zeros around a source are factors
/// like others: with an infinite one they give NaN.
MANTISSA_API void add_windows(const WindowSums& sums);
MANTISSA_API void add_windows(const FilterGradient& gradient);

/// The same one element after the other, bit for bit where there are fused multiply-adds.
MANTISSA_API void add_windows_reference(const WindowSums& sums);
MANTISSA_API void add_windows_reference(const FilterGradient& gradient);

/// sums[c] = sum over n and o of image[n, c, o], for all channels.
MANTISSA_API void add_channels(const Image& image, const Axes& axes, int64_t batch,
                               int64_t channels, float* sums);

/// How the sums are taken: as products of matrices, or, where these would be thin, line by line.
bool suits_panels(const WindowSums& sums);
bool suits_panels(const FilterGradient& gradient);

/// Where each tap lies in the filter.
std::vector<int64_t> tap_offsets(const Axes& axes, const Filter& filter);

/// Axes whose windows are the source's positions.
Axes positions_of(const Axes& axes);

}  // namespace mantissa::ops
