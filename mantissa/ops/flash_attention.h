#pragma once

#include <cstdint>

#include "mantissa/numerics/format.h"
#include "mantissa/ops/panel_product.h"

/// Attention of one head, a block of scores at a time: Dao et al., "FlashAttention" (2022).
namespace mantissa::ops {

struct AttentionShape {
  int64_t queries;
  int64_t keys;
  int64_t width;  // of a query, a key and a value
  float scale;    // of the scores
  bool causal;    // query i sees the keys 0 to i
  bool tf32;      // the probabilities, and their gradients, are rounded to TF32 where multiplied
};

/// What is added to the scaled scores; one of the strides is 1, or the other 0.
struct AttentionMask {
  const void* data = nullptr;  // none
  numerics::Format format = numerics::Format::fp32;
  int64_t query_stride = 0;
  int64_t key_stride = 0;
};

/// Rows of `width` contiguous numbers, rounded once.
struct AttentionOutput {
  void* data;
  numerics::Format format;  // bf16, fp16 or fp32
  int64_t row_stride;
};

struct AttentionHead {
  Factor query;  // queries x width
  Factor key;    // keys x width
  Factor value;  // keys x width
  AttentionMask mask;
};

/// A number for each query.
template <typename Number>
struct QueryNumbers {
  Number* data;
  int64_t stride;
};

/// out = softmax(scale query key^T + mask) value, and the logarithm of the softmax's denominator.
/// All sums are FP32 and do not depend on threads. A query that sees no key, or scores of -infinity
/// only, gets zeros and a logarithm of 0, as in LibTorch.
void attend(const AttentionShape& shape, const AttentionHead& head, const AttentionOutput& out,
            QueryNumbers<float> logsumexp);

struct AttentionGradients {
  AttentionOutput query;
  AttentionOutput key;
  AttentionOutput value;
};

/// The gradients of the sum of `out` times `grad_out`, for the same shape and head; `out` and
/// `logsumexp` are what attend() made. Scores are computed again. FP32 scratch of a thread: a
/// head's gradient of queries, and blocks.
void attend_backward(const AttentionShape& shape, const AttentionHead& head, const Factor& grad_out,
                     const Factor& out, QueryNumbers<const float> logsumexp,
                     const AttentionGradients& gradients);

}  // namespace mantissa::ops
