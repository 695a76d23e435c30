#include <algorithm>
#include <array>

#include "mantissa/ops/cpu/moments.h"
#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/cpu/update_arrays.h"
#include "mantissa/ops/cpu/weights.h"

// Vectors of a size that is known when this is compiled.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/adamw.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "mantissa/ops/cpu/element_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {

template <typename Gradient, typename... Model>
void update_as(const AdamwArrays& arrays, const AdamwView& view, const AdamwConstants& constants) {
  const auto all = [](float value) HWY_ATTR { return hn::Set(kFloats, value); };
  const Floats factor = all(constants.gradient_factor);
  const Floats beta1 = all(constants.beta1);
  const Floats one_minus_beta1 = all(constants.one_minus_beta1);
  const Floats beta2 = all(constants.beta2);
  const Floats one_minus_beta2 = all(constants.one_minus_beta2);
  const Floats eps = all(constants.eps);
  const Floats step_size = all(view.step_size);
  const Floats inverse_correction = all(view.inverse_sqrt_correction2);
  const Floats coupled_decay = all(view.coupled_decay);
  const Floats decoupled_decay = all(view.decoupled_decay);
  for_vectors(
      arrays.count,
      [&](const typename Gradient::Type* gradient, float* weight, float* exp_avg, float* exp_avg_sq,
          typename Model::Type*... model) HWY_ATTR {
        const Floats before = hn::LoadU(kFloats, weight);
        const Floats g =
            hn::Add(hn::Mul(Gradient::read(gradient), factor), hn::Mul(coupled_decay, before));
        const Floats m =
            hn::Add(hn::Mul(beta1, hn::LoadU(kFloats, exp_avg)), hn::Mul(one_minus_beta1, g));
        const Floats v = hn::Add(hn::Mul(beta2, hn::LoadU(kFloats, exp_avg_sq)),
                                 hn::Mul(hn::Mul(one_minus_beta2, g), g));
        const Floats root = hn::Mul(hn::Sqrt(v), inverse_correction);
        const Floats decrement = hn::Add(hn::Mul(step_size, hn::Div(m, hn::Add(root, eps))),
                                         hn::Mul(decoupled_decay, before));
        const Floats after = hn::Sub(before, decrement);
        hn::StoreU(m, kFloats, exp_avg);
        hn::StoreU(v, kFloats, exp_avg_sq);
        hn::StoreU(after, kFloats, weight);
        (Model::write(after, model), ...);
      },
      static_cast<const typename Gradient::Type*>(arrays.gradient), arrays.weights, arrays.exp_avg,
      arrays.exp_avg_sq, static_cast<typename Model::Type*>(arrays.model)...);
}

void update(const AdamwArrays& arrays, const AdamwView& view, const AdamwConstants& constants) {
  with_format(format_of(view.weight.gradient.dtype), [&]<Format kGradient>() HWY_ATTR {
    with_model(arrays, [&]<typename... Model>() HWY_ATTR {
      update_as<Elements<kGradient>, Model...>(arrays, view, constants);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops::cpu {

HWY_EXPORT(update);

// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), algorithm 2: both forms of
// decay, with eps outside of the root of the corrected second moment. 24 bytes an element read and
// written in FP32, 8 of them for the weight, 2 or 4 for the gradient, 2 for a 16-bit model.
void adamw(const std::vector<AdamwView>& parameters, const AdamwConstants& constants) {
  update_pieces(parameters, [&](const AdamwView& view, int64_t begin, int64_t end) {
    const WeightView& weight = view.weight;
    const bool is_direct =
        weight.master != nullptr && is_fp32(view.exp_avg) && is_fp32(view.exp_avg_sq);
    const int64_t block = is_direct ? end - begin : kBlockElements;
    std::array<float, kBlockElements> weight_buffer;
    std::array<float, kBlockElements> exp_avg_buffer;
    std::array<float, kBlockElements> exp_avg_sq_buffer;
    for (int64_t i = begin; i < end; i += block) {
      AdamwArrays arrays = {};
      set_arrays(weight, i, std::min(block, end - i), weight_buffer.data(), arrays);
      arrays.exp_avg = load_moments(view.exp_avg, i, arrays.count, exp_avg_buffer.data());
      arrays.exp_avg_sq = load_moments(view.exp_avg_sq, i, arrays.count, exp_avg_sq_buffer.data());
      HWY_DYNAMIC_DISPATCH(update)(arrays, view, constants);
      store_weights(weight, i, arrays.count, arrays.weights);
      store_moments(view.exp_avg, i, arrays.count, arrays.exp_avg);
      store_moments(view.exp_avg_sq, i, arrays.count, arrays.exp_avg_sq);
    }
  });
}

}  // namespace mantissa::ops::cpu
#endif
