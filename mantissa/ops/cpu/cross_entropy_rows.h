#pragma once

#include <cstdint>

namespace mantissa::ops::cpu {

/// Rows of logits with their targets.
struct CrossEntropyRows {
  float* logits;  // rows x classes
  int64_t rows;
  int64_t classes;
  const int64_t* targets;  // a class each, or ignore_index
  int64_t ignore_index;
  double smoothing;  // the share of the target that all classes have in equal parts
};

/// The cross-entropy of each row in nats, 0 for an ignored one. Exponentials are FP32, their sums
/// FP32 over 1024 classes and FP64 over those; the same on every processor with fused
/// multiply-adds.
void cross_entropy_rows(const CrossEntropyRows& rows, double* losses);

/// The same, and each logit is replaced by its gradient times `scale`.
void cross_entropy_rows_with_gradient(const CrossEntropyRows& rows, float scale, double* losses);

/// sums[j] += the sum of matrix[i * cols + j] over i in order, in FP32.
void add_column_sums(const float* matrix, int64_t rows, int64_t cols, float* sums);

}  // namespace mantissa::ops::cpu
