#include <array>

#include "mantissa/ops/cpu/moments.h"
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
  update_weights(parameters, [&](const SgdView& view, float* weights, const float* gradient,
                                 int64_t begin, int64_t count) {
    if (view.momentum.values == nullptr) {
      update_block(weights, gradient, count, view, constants);
      return;
    }
    std::array<float, kBlockElements> buffer;
    float* momentum = load_moments(view.momentum, begin, count, buffer.data());
    update_block_with_momentum(weights, gradient, momentum, count, view, constants);
    store_moments(view.momentum, begin, count, momentum);
  });
}

}  // namespace mantissa::ops::cpu
