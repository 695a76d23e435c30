#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/random.h"
#include "mantissa/numerics/format.h"

/// A tiny model of DNA, trained in scalar C++ whose every rounding is written down: the same bits
/// on every machine with IEEE 754 arithmetic. It says what mixed precision training has to compute;
/// the fast path is compared with it.
namespace mantissa::golden {

/// Four bases, one-hot -> linear -> ReLU -> linear -> the next base. No biases.
inline constexpr int64_t kBatch = 32;
inline constexpr int64_t kInputs = 16;
inline constexpr int64_t kHidden = 16;
inline constexpr int64_t kBases = 4;

/// AdamW, without clipping.
inline constexpr double kLr = 0.02;
inline constexpr double kBeta1 = 0.9;
inline constexpr double kBeta2 = 0.999;
inline constexpr double kEps = 1e-8;
inline constexpr double kWeightDecay = 0.1;

/// The loss scale of fp16, dynamic: the first steps overflow, and later ones do when it has grown.
/// Other formats have scale 1.
inline constexpr float kInitialScale = 0x1p24F;
inline constexpr float kScaleGrowth = 2.0F;
inline constexpr float kScaleBackoff = 0.5F;
inline constexpr int32_t kScaleGrowthInterval = 6;  // finite steps in a row

/// Row by row.
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> values;

  static Matrix zeros(int64_t rows, int64_t columns);
  float& at(int64_t row, int64_t column) { return values[(row * columns) + column]; }
  float at(int64_t row, int64_t column) const { return values[(row * columns) + column]; }
};

/// Or their gradients or moments. As at::linear takes them: outputs x inputs.
struct Weights {
  Matrix hidden;  // kHidden x kInputs
  Matrix output;  // kBases x kHidden
};

struct Batch {
  Matrix inputs;                 // kBatch x kInputs
  std::vector<int64_t> targets;  // kBatch
};

/// All about one training step.
struct Step {
  int64_t number = 0;  // from 1
  Batch batch;
  Weights before;
  float loss = 0;     // mean cross-entropy, nats, not scaled
  float scale = 1;    // of the loss whose gradients these are
  Weights gradients;  // of the FP32 weights, times `scale`
  bool applied = false;
  Weights after;
};

/// What `torch` autocast with cross_entropy_loss in FP32 means for this model:
/// - a product rounds its factors to `compute`, sums products in FP32 in index order and, when
///   `compute` has 16 bits, rounds the sum once; so do the products of backward;
/// - log-softmax, loss and their gradients are FP32; the gradient of 16-bit logits is rounded once;
/// - the gradient of a weight is that of its 16-bit copy, widened;
/// - when a gradient is not finite the step is skipped and the scale backs off.
/// Rounding is to nearest even (numerics::round_to, itself integer arithmetic).
class ReferenceTraining {
 public:
  /// `bases`, of A, C, G and T, are the text of which batches are drawn.
  ReferenceTraining(numerics::Format compute, std::string_view bases);

  Step step();

 private:
  Batch draw_batch();
  bool update(const Weights& gradients);
  void update_scale(bool finite);

  numerics::Format compute_;
  std::vector<int64_t> bases_;
  Random random_;
  Weights weights_;
  Weights exp_avg_;
  Weights exp_avg_sq_;
  int64_t steps_ = 0;
  int64_t updates_ = 0;
  float scale_ = 1;
  int32_t finite_steps_ = 0;  // since the scale last changed
};

/// The bases of a FASTA file with one record, its line ends taken out.
std::string bases_of_fasta(std::string_view fasta);

}  // namespace mantissa::golden
