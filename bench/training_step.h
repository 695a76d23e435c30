#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/same_losses.h"
#include "mantissa/data/batch.h"
#include "mantissa/numerics/format.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::bench {

/// The training step that figures are about: a causal transformer of 3.2 M parameters, forward,
/// loss, backward, gradients unscaled, checked and clipped, AdamW.
inline constexpr int64_t kStepBatch = 8;
inline constexpr int64_t kStepContext = 512;
inline constexpr int64_t kStepTokens = kStepBatch * kStepContext;
inline constexpr int64_t kStepLayers = 4;
inline constexpr int64_t kStepWidth = 256;
inline constexpr int64_t kStepHeads = 4;
inline constexpr int64_t kStepMlpRatio = 4;
inline constexpr int64_t kStepVocabulary = 16;
inline constexpr double kStepRopeBase = 1e4;
inline constexpr double kStepLr = 1e-4;
inline constexpr double kStepBeta1 = 0.9;
inline constexpr double kStepBeta2 = 0.95;
inline constexpr double kStepEps = 1e-8;
inline constexpr double kStepWeightDecay = 0.1;  // of matrices alone
inline constexpr double kStepClip = 1.0;

struct LinearShape {
  const char* name;
  int64_t in;
  int64_t out;
  int64_t count;  // in one step
};

/// Its linear layers.
constexpr std::array<LinearShape, 5> step_linears() {
  constexpr int64_t d = kStepWidth;
  return {{{"qkv", d, 3 * d, kStepLayers},
           {"out", d, d, kStepLayers},
           {"up", d, kStepMlpRatio * d, kStepLayers},
           {"down", kStepMlpRatio * d, d, kStepLayers},
           {"head", d, kStepVocabulary, 1}}};
}

/// Floating-point operations of forward and backward: three products a linear layer; two products
/// of the T by T attention matrix forward and four backward, half of each under the causal mask,
/// what a kernel computes again not counted.
constexpr double step_linear_flops() {
  double flops = 0;
  for (const LinearShape& shape : step_linears()) {
    flops += 3 * 2.0 * static_cast<double>(kStepTokens * shape.in * shape.out * shape.count);
  }
  return flops;
}
constexpr double step_attention_flops() {
  return 6 * 2.0 / 2 * static_cast<double>(kStepLayers * kStepTokens * kStepContext * kStepWidth);
}

/// Random bases, the same ones in each process; steps go round them.
std::vector<data::Batch> step_batches();

/// The weights that every step begins with, FP32.
tensor::ParameterList step_parameters();

/// Settings that are not the defaults.
struct StepSettings {
  std::string policy = "torch-fixed";
  std::string recompute = "none";
  bool gradient_statistics = false;  // of every parameter
};

/// What `mantissa train` does with default settings but these, in `compute`.
Step our_step(numerics::Format compute, const StepSettings& settings = {});

/// What that step keeps for backward: bytes that are live after the forward pass and were not
/// before it.
double activation_bytes(numerics::Format compute, const StepSettings& settings = {});

/// The same by plain LibTorch: FP32, or BF16 under at::autocast, LibTorch's kernels, its fused
/// AdamW.
Step libtorch_step(numerics::Format compute);

}  // namespace mantissa::bench
