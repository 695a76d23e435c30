#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/Parallel.h>

#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/cpu/weights.h"

namespace mantissa::ops::cpu {
namespace {

void update_block(float* __restrict master, const float* __restrict gradient,
                  float* __restrict exp_avg, float* __restrict exp_avg_sq, int64_t count,
                  const AdamwView& view, const AdamwConstants& constants) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * constants.gradient_factor;
    const float m = constants.beta1 * exp_avg[i] + constants.one_minus_beta1 * g;
    const float v = constants.beta2 * exp_avg_sq[i] + constants.one_minus_beta2 * g * g;
    const float denominator = std::sqrt(v) * view.inverse_sqrt_correction2 + constants.eps;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] -= view.step_size * (m / denominator) + view.decay * master[i];
  }
}

}  // namespace

// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), algorithm 2, with eps
// outside of the root of the corrected second moment. 24 bytes an element read and written in
// FP32, 2 or 4 for the gradient, 2 for a 16-bit model.
void adamw(const std::vector<AdamwView>& parameters, const AdamwConstants& constants) {
  std::vector<int64_t> sizes;
  sizes.reserve(parameters.size());
  for (const AdamwView& parameter : parameters) {
    sizes.push_back(parameter.weight.gradient.count);
  }
  const std::vector<Chunk> chunks = chunks_of(sizes);
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 1, [&](int64_t first, int64_t last) {
    std::array<float, kBlockElements> gradients;
    std::array<float, kBlockElements> weights;
    for (int64_t c = first; c < last; ++c) {
      const AdamwView& view = parameters[chunks[c].tensor];
      const WeightView& weight = view.weight;
      for (int64_t i = chunks[c].begin; i < chunks[c].end; i += kBlockElements) {
        const int64_t count = std::min(kBlockElements, chunks[c].end - i);
        const float* gradient =
            widen(weight.gradient.data, weight.gradient.dtype, i, count, gradients.data());
        float* master = load_weights(weight, i, count, weights.data());
        update_block(master, gradient, view.exp_avg + i, view.exp_avg_sq + i, count, view,
                     constants);
        store_weights(weight, i, count, master);
      }
    }
  });
}

}  // namespace mantissa::ops::cpu
