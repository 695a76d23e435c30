#pragma once

#include <cstdint>

/// What attention does with a strip of scores: `rows` rows of register_block().cols numbers, one
/// after the other, aligned to 64 bytes.
namespace mantissa::ops::cpu {

inline constexpr int64_t kMostStripCols = 32;  // of any processor
inline constexpr int64_t kAllVisible = INT64_MAX;

/// Scores of keys (rows) and queries (columns): their softmax over keys, a part of the keys at a
/// time. Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
struct SoftmaxStrip {
  float* scores;  // products of queries and keys, replaced by e^(scale score + mask - max)
  int64_t rows;
  float scale;
  const float* mask;  // a strip that is added to the scaled scores; or null
  int64_t diagonal;   // row i counts for columns from i - diagonal on; or kAllVisible
  bool round_to_tf32;
  // A number for each column, brought up to date: the largest score so far (at first -infinity) and
  // the sum of exponentials relative to it (0); `correction` is what sums up to now must be
  // multiplied by.
  float* max;
  float* sum;
  float* correction;
};

void softmax(const SoftmaxStrip& strip);

/// Scores of queries (rows) and keys (columns) and the gradients of their probabilities:
///     p = e^(scale score + mask - logsumexp);  ds = scale p (gradient - delta)
struct SoftmaxGradientStrip {
  float* scores;     // replaced by p
  float* gradients;  // replaced by ds
  int64_t rows;
  int64_t cols;  // those beyond become 0
  float scale;
  const float* mask;  // as above
  int64_t diagonal;   // row i counts for columns up to i + diagonal; or kAllVisible
  bool round_to_tf32;
  const float* logsumexp;  // of each row
  const float* delta;      // of each row: the sum over keys of p times gradient
};

void softmax_gradient(const SoftmaxGradientStrip& strip);

}  // namespace mantissa::ops::cpu
