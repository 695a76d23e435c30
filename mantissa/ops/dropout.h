#pragma once

#include <optional>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::ops {

/// Dropout (Srivastava et al., 2014): each number of `x` becomes zero with probability p, the
/// others are multiplied by 1 / (1 - p). Without `train`, and with p = 0, the result is `x`; with
/// p = 1 it is x * 0.
///
/// Number i of `x`, counted row by row, is dropped when 16 bits of a counter-based generator are
/// below 2^16 p: bits i of the stream Random(seed, stream) of base/random.h, two a word, the lower
/// ones first. So p is rounded to a multiple of 2^-16, to none of 0 and 1; the factor is that of
/// the rounded p, and the mean of the result is x. The seed and the stream are drawn from
/// `generator`, or LibTorch's default CPU generator, where p is neither 0 nor 1 and `x` not empty:
/// 64 bits each, for tensors of every device. The mask depends on nothing else, neither on threads
/// nor on strides, dtype or device. Backward makes it again: no mask is kept.
///
/// `x` in FP32, BF16, FP16 or FP64. 16-bit numbers are multiplied in FP32 and rounded once. As in
/// LibTorch, which multiplies by the mask, an infinity and NaN become NaN also where they are
/// dropped: an overflow is not hidden by chance. Where something is left to chance the
/// result is contiguous. In an autocast region no argument is cast. On other devices the mask is
/// made on the CPU and copied, which waits for the device.
///
/// The dispatcher's operation mantissa::dropout, whose arguments are the seed and the stream.
/// Throws InvalidArgument for other dtypes and for p outside of [0, 1].
MANTISSA_API at::Tensor dropout(const at::Tensor& x, double p, bool train = true,
                                const std::optional<at::Generator>& generator = {});

/// residual + dropout(x) in one pass: an FP32 sum, rounded once to the wider dtype of the two. The
/// dispatcher's operation mantissa::dropout_add.
MANTISSA_API at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, double p,
                                    bool train = true,
                                    const std::optional<at::Generator>& generator = {});

}  // namespace mantissa::ops
