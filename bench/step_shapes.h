#pragma once

#include <array>
#include <cstdint>

namespace mantissa::bench {

/// The training step that figures are about: a causal transformer of 3.2 M parameters.
inline constexpr int64_t kStepBatch = 8;
inline constexpr int64_t kStepContext = 512;
inline constexpr int64_t kStepTokens = kStepBatch * kStepContext;
inline constexpr int64_t kStepLayers = 4;
inline constexpr int64_t kStepWidth = 256;
inline constexpr int64_t kStepHeads = 4;
inline constexpr int64_t kStepMlpRatio = 4;
inline constexpr int64_t kStepVocabulary = 16;

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

}  // namespace mantissa::bench
