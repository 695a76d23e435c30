#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::ops {

/// The causal convolution of each channel with a filter as long as the context, by FFT (H3, Hyena):
///
///     out[b, c, t] = sum over s <= t of filter[c, s] x[b, c, t - s]  + bias[c] x[b, c, t]
///
/// x (..., C, L), filter (C, taps) with any number of taps, those after the L-th being without
/// effect, bias (C); each in FP32, BF16 or FP16, which an autocast region leaves as they are.
/// Arithmetic is FP32; the result is rounded once, to the dtype of x, and gradients to that of what
/// they are of. The sum over the batch, of the filter's gradient, is taken in order. Nothing
/// depends on the number of threads, which share the channels. Backward keeps x and the filter as
/// they are, no spectrum; beyond results there are buffers of 6 L FP32 numbers a thread, 11 L in
/// backward (L rounded up to a transform's size). FP64, and other devices, go by ATen operations.
///
/// An FFT's error is relative to the whole row, about 5 * 2^-24 of the root mean square of the
/// exact result: a small number in a row with large ones has fewer right digits than by direct
/// sums. A NaN or an infinity makes its whole row NaN, as the sum of |x| times that of |filter| may
/// where it exceeds 3.4e38; in the filter's gradient, its channel. No other row or channel sees it.
/// Gradients cannot be differentiated once more.
///
/// The dispatcher's operation mantissa::long_convolution. Throws InvalidArgument for other shapes
/// and dtypes.
MANTISSA_API at::Tensor long_convolution(const at::Tensor& x, const at::Tensor& filter,
                                         const std::optional<at::Tensor>& bias = {});

}  // namespace mantissa::ops
