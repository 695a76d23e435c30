#include <array>
#include <cmath>

#include "mantissa/ops/cpu/moments.h"
#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/cpu/weights.h"

namespace mantissa::ops::cpu {
namespace {

void update_block(float* __restrict master, const float* __restrict gradient,
                  float* __restrict exp_avg, float* __restrict exp_avg_sq, int64_t count,
                  const AdamwView& view, const AdamwConstants& constants) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * constants.gradient_factor + view.coupled_decay * master[i];
    const float m = constants.beta1 * exp_avg[i] + constants.one_minus_beta1 * g;
    const float v = constants.beta2 * exp_avg_sq[i] + constants.one_minus_beta2 * g * g;
    const float denominator = std::sqrt(v) * view.inverse_sqrt_correction2 + constants.eps;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] -= view.step_size * (m / denominator) + view.decoupled_decay * master[i];
  }
}

}  // namespace

// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), algorithm 2: both forms of
// decay, with eps outside of the root of the corrected second moment. 24 bytes an element read and
// written in FP32, 8 of them for the weight, 2 or 4 for the gradient, 2 for a 16-bit model.
void adamw(const std::vector<AdamwView>& parameters, const AdamwConstants& constants) {
  update_weights(parameters, [&](const AdamwView& view, float* weights, const float* gradient,
                                 int64_t begin, int64_t count) {
    std::array<float, kBlockElements> exp_avg_buffer;
    std::array<float, kBlockElements> exp_avg_sq_buffer;
    float* exp_avg = load_moments(view.exp_avg, begin, count, exp_avg_buffer.data());
    float* exp_avg_sq = load_moments(view.exp_avg_sq, begin, count, exp_avg_sq_buffer.data());
    update_block(weights, gradient, exp_avg, exp_avg_sq, count, view, constants);
    store_moments(view.exp_avg, begin, count, exp_avg);
    store_moments(view.exp_avg_sq, begin, count, exp_avg_sq);
  });
}

}  // namespace mantissa::ops::cpu
