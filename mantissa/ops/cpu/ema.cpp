#include <array>

#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/cpu/weights.h"

namespace mantissa::ops::cpu {
namespace {

void update_block(float* __restrict shadow, const float* __restrict weights, int64_t count,
                  float rate) {
  for (int64_t i = 0; i < count; ++i) {
    shadow[i] += rate * (weights[i] - shadow[i]);
  }
}

}  // namespace

// 8 bytes an element for the shadow, 4 or less for the weight.
void ema(const std::vector<EmaView>& parameters, float rate) {
  std::vector<int64_t> sizes;
  sizes.reserve(parameters.size());
  for (const EmaView& parameter : parameters) {
    sizes.push_back(parameter.count);
  }
  const std::vector<Chunk> chunks = chunks_of(sizes);
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 1, [&](int64_t first, int64_t last) {
    std::array<float, kBlockElements> buffer;
    for (int64_t c = first; c < last; ++c) {
      const EmaView& view = parameters[chunks[c].tensor];
      for (int64_t i = chunks[c].begin; i < chunks[c].end; i += kBlockElements) {
        const int64_t count = std::min(kBlockElements, chunks[c].end - i);
        const float* weights = load_weights(view.weight, i, count, buffer.data());
        update_block(view.shadow + i, weights, count, rate);
      }
    }
  });
}

}  // namespace mantissa::ops::cpu
