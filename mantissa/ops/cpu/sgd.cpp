#include <algorithm>
#include <array>

#include <ATen/Parallel.h>

#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/cpu/weights.h"

namespace mantissa::ops::cpu {
namespace {

void update_block(float* __restrict master, const float* __restrict gradient, int64_t count,
                  const SgdView& view, const SgdConstants& constants) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * constants.gradient_factor + view.coupled_decay * master[i];
    master[i] -= view.lr * g + view.decoupled_decay * master[i];
  }
}

void update_block_with_momentum(float* __restrict master, const float* __restrict gradient,
                                float* __restrict momentum, int64_t count, const SgdView& view,
                                const SgdConstants& constants) {
  const bool nesterov = constants.lookahead != 0;
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * constants.gradient_factor + view.coupled_decay * master[i];
    const float b = constants.momentum * momentum[i] + g;
    const float direction = nesterov ? g + constants.lookahead * b : b;
    momentum[i] = b;
    master[i] -= view.lr * direction + view.decoupled_decay * master[i];
  }
}

}  // namespace

// b = momentum b + g; w -= lr b, or with Nesterov's momentum w -= lr (g + momentum b), as in
// Sutskever et al., "On the importance of initialization and momentum" (2013), in the form that
// keeps lr out of b. 8 bytes an element for the weight, 8 for b, 2 or 4 for g, 2 for the model.
void sgd(const std::vector<SgdView>& parameters, const SgdConstants& constants) {
  std::vector<int64_t> sizes;
  sizes.reserve(parameters.size());
  for (const SgdView& parameter : parameters) {
    sizes.push_back(parameter.weight.gradient.count);
  }
  const std::vector<Chunk> chunks = chunks_of(sizes);
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 1, [&](int64_t first, int64_t last) {
    std::array<float, kBlockElements> gradients;
    std::array<float, kBlockElements> weights;
    for (int64_t c = first; c < last; ++c) {
      const SgdView& view = parameters[chunks[c].tensor];
      const WeightView& weight = view.weight;
      for (int64_t i = chunks[c].begin; i < chunks[c].end; i += kBlockElements) {
        const int64_t count = std::min(kBlockElements, chunks[c].end - i);
        const float* gradient =
            widen(weight.gradient.data, weight.gradient.dtype, i, count, gradients.data());
        float* master = load_weights(weight, i, count, weights.data());
        if (view.momentum != nullptr) {
          update_block_with_momentum(master, gradient, view.momentum + i, count, view, constants);
        } else {
          update_block(master, gradient, count, view, constants);
        }
        store_weights(weight, i, count, master);
      }
    }
  });
}

}  // namespace mantissa::ops::cpu
