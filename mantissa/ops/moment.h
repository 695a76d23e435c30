#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/ops/block_quantization.h"

namespace mantissa::ops {

enum class MomentFormat : uint8_t { fp32, bf16, blockwise8 };

/// The enumerator, as in run files and checkpoints.
MANTISSA_API std::string_view to_string(MomentFormat format);

/// A running mean of gradients (first moment, momentum) or of their squares (second moment) from
/// step to step. An update reads it as FP32, uses the FP32 value that it computes, and stores that:
///
/// | values | scales | bytes | stored                                                       |
/// | ------ | ------ | ----- | ------------------------------------------------------------ |
/// | FP32   | -      | 4     | as it is                                                     |
/// | BF16   | -      | 2     | rounded stochastically, right in the mean                    |
/// | uint8  | FP32   | 1.016 | codes of blocks of 256 in the order of memory, to nearest:
/// block_quantization.h |
///
/// BF16. To nearest a second moment v could not decay: each step takes (1 - beta2) v off it, with
/// beta2 = 0.999 less than the 2^-9 v that half of a rounding step is at least; it would only grow.
///
/// Blocks of codes. A first moment is a CodeMap::with_sign, a second one nonnegative, where a code
/// is that of 0 only for 0: no step divides by a root that rounding has made 0. An element whose
/// gradients have a root mean square below 5.7 * 10^-4 of the largest of its block so gets smaller
/// steps than with FP32 moments. Otherwise one rounding takes at most 47 % off a second moment,
/// which makes a step 1.37 times as large. But rounding to nearest holds back slow changes of a
/// moment relative to the largest of its block: v follows the squares g^2 only when |g^2 / v - 1|
/// exceeds e / (1 - beta2), where e is the relative error of the map. With beta2 = 0.999 that is up
/// to 33 in the upper decade, with 0.95 up to 0.7 ("signal swamping": Xu et al., 2025,
/// arXiv:2505.00347). Prefer beta2 up to 0.99.
struct Moment {
  Moment() = default;
  // An FP32 or BF16 tensor is a moment.
  Moment(at::Tensor stored, at::Tensor block_scales = {})
      : values(std::move(stored)), scales(std::move(block_scales)) {}

  at::Tensor values;  // the master's sizes and strides
  at::Tensor scales;  // 1-d, one for each block that is begun
  // BF16: element i takes word i of the stream Random(seed, stream); a step needs a stream of its
  // own.
  uint64_t seed = 0;
  uint64_t stream = 0;
};

/// A moment of zeros for a weight with the sizes and strides of `pattern`.
MANTISSA_API Moment zero_moment(const at::Tensor& pattern, MomentFormat format, CodeMap map);

}  // namespace mantissa::ops
