#pragma once

#include <cstdint>

#include "mantissa/ops/cuda/element.h"

/// The passes over plain pointers of a device: what the .cu files define. Nothing here knows
/// LibTorch, CUDA's headers or HIP's; `stream` is a cudaStream_t or hipStream_t. Each function
/// enqueues and waits for nothing, returns 0 or the error of its device, and may be captured in a
/// graph: lists of tensors travel in the arguments of a kernel, whose size is limited to 4 KB.
///
/// Results depend on shapes alone: sums are taken in fixed trees, no floating-point number is added
/// atomically.
namespace mantissa::ops::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kVector = 4;  // elements that a thread reads at once

/// Elements of one block of threads, in pieces of which each tensor begins a new one.
inline constexpr int64_t kGradientPiece = int64_t{16} * kThreads * kVector;
inline constexpr int64_t kUpdatePiece = int64_t{4} * kThreads * kVector;

inline constexpr int64_t pieces_of(int64_t count, int64_t piece) {
  return (count + piece - 1) / piece;
}

struct GradientTensor {
  const void* data;
  int64_t count;  // never 0
  Storage storage;
  bool is_aligned;  // to kVector elements
};

struct GradientList {
  static constexpr int kMost = 96;
  GradientTensor tensors[kMost];
  int32_t first_piece[kMost + 1];  // of each tensor, and the end
  int32_t size;
  const float* scale;  // null: 1
  double* sums;        // one for each piece: of squares of unscaled gradients
};

/// The sums of all lists together.
struct GradientSums {
  const double* sums;
  int64_t count;
  const float* scale;  // null: 1
  float* found_inf;
  float* norm;
};

/// How the FP32 weight is kept: see ops::WeightUpdate.
enum class Kept : uint8_t { master, split, compensated, rounded, rounded_stochastically };

struct MomentArray {
  void* data;     // FP32, or BF16 that is rounded stochastically; null: none
  uint64_t seed;  // of random numbers
  uint64_t stream;
  Storage storage;
};

struct UpdateTensor {
  const void* gradient;
  float* master;
  void* model;
  void* rest;
  MomentArray first;
  MomentArray second;
  const int64_t* step;  // AdamW: updates before this one
  unsigned long long* lost;
  int64_t count;          // never 0
  double lr;              // of the host
  const void* lr_factor;  // FP32 or FP64; null: 1
  double weight_decay;
  uint64_t seed;  // of random numbers of the weight
  uint64_t stream;
  Storage gradient_storage;
  Storage model_storage;
  Kept kept;
  bool lr_factor_is_double;
  bool is_aligned;
};

/// What all parameters of a step have in common.
struct UpdateUse {
  const float* scale;        // null: 1
  const float* clip_factor;  // null: 1
  const float* found_inf;    // null: 0; not 0: nothing is changed
  bool decay_is_coupled;
  const int64_t* stream_offset;  // null: 0; added to each stream
};

struct UpdateList {
  static constexpr int kMost = 22;
  UpdateTensor tensors[kMost];
  int32_t first_piece[kMost + 1];
  int32_t size;
  UpdateUse use;
};

struct StepCounts {
  static constexpr int kMost = 256;
  int64_t* steps[kMost];
  int32_t size;
  const float* found_inf;
};

struct CrossEntropyRows {
  const float* logits;  // rows x classes
  int64_t rows;
  int64_t classes;
  const int64_t* targets;  // a class each, or ignore_index; another one makes its row NaN
  int64_t ignore_index;
  double smoothing;
  double* losses;   // a row each; 0 of an ignored one
  void* gradients;  // null, or rows x classes: of the logits, times `lift`; may be `logits`
  Storage gradient_storage;
  float lift;
};

struct Kernels {
  int (*gradient_sums)(const GradientList& list, void* stream);
  int (*gradient_conclusion)(const GradientSums& sums, void* stream);
  int (*adamw)(const UpdateList& list, const AdamwFactors& factors, double log_beta1,
               double log_beta2, void* stream);
  int (*sgd)(const UpdateList& list, const SgdFactors& factors, void* stream);
  int (*count_steps)(const StepCounts& counts, void* stream);  // + 1 unless found_inf
  int (*cross_entropy)(const CrossEntropyRows& rows, void* stream);
  const char* (*error_text)(int error);
};

/// Those that were compiled into this library or program.
const Kernels& kernels();

}  // namespace mantissa::ops::cuda
