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
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/sgd.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "mantissa/ops/cpu/element_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {

template <typename Gradient, typename... Model>
void update_as(const SgdArrays& arrays, const SgdView& view, const SgdConstants& constants) {
  const auto all = [](float value) HWY_ATTR { return hn::Set(kFloats, value); };
  const Floats factor = all(constants.gradient_factor);
  const Floats decay = all(constants.momentum);
  const Floats lookahead = all(constants.lookahead);
  const Floats lr = all(view.lr);
  const Floats coupled_decay = all(view.coupled_decay);
  const Floats decoupled_decay = all(view.decoupled_decay);
  const bool is_nesterov = constants.lookahead != 0;
  const auto gradient_of = [&](const typename Gradient::Type* gradient, Floats weight) HWY_ATTR {
    return hn::Add(hn::Mul(Gradient::read(gradient), factor), hn::Mul(coupled_decay, weight));
  };
  const auto move = [&](Floats before, Floats direction, float* weight,
                        typename Model::Type*... model) HWY_ATTR {
    const Floats decrement = hn::Add(hn::Mul(lr, direction), hn::Mul(decoupled_decay, before));
    const Floats after = hn::Sub(before, decrement);
    hn::StoreU(after, kFloats, weight);
    (Model::write(after, model), ...);
  };
  const auto* gradients = static_cast<const typename Gradient::Type*>(arrays.gradient);
  if (arrays.momentum == nullptr) {
    for_vectors(
        arrays.count,
        [&](const typename Gradient::Type* gradient, float* weight, typename Model::Type*... model)
            HWY_ATTR {
              const Floats before = hn::LoadU(kFloats, weight);
              move(before, gradient_of(gradient, before), weight, model...);
            },
        gradients, arrays.weights, static_cast<typename Model::Type*>(arrays.model)...);
    return;
  }
  for_vectors(
      arrays.count,
      [&](const typename Gradient::Type* gradient, float* weight, float* momentum,
          typename Model::Type*... model) HWY_ATTR {
        const Floats before = hn::LoadU(kFloats, weight);
        const Floats g = gradient_of(gradient, before);
        const Floats b = hn::Add(hn::Mul(decay, hn::LoadU(kFloats, momentum)), g);
        hn::StoreU(b, kFloats, momentum);
        move(before, is_nesterov ? hn::Add(g, hn::Mul(lookahead, b)) : b, weight, model...);
      },
      gradients, arrays.weights, arrays.momentum,
      static_cast<typename Model::Type*>(arrays.model)...);
}

void update(const SgdArrays& arrays, const SgdView& view, const SgdConstants& constants) {
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

// b = momentum b + g; w -= lr b, or with Nesterov's momentum w -= lr (g + momentum b), as in
// Sutskever et al., "On the importance of initialization and momentum" (2013), in the form that
// keeps lr out of b. 8 bytes an element for the weight, 8 for b, 2 or 4 for g, 2 for the model.
void sgd(const std::vector<SgdView>& parameters, const SgdConstants& constants) {
  update_pieces(parameters, [&](const SgdView& view, int64_t begin, int64_t end) {
    const WeightView& weight = view.weight;
    const bool has_momentum = view.momentum.values != nullptr;
    const bool is_direct = weight.master != nullptr && (!has_momentum || is_fp32(view.momentum));
    const int64_t block = is_direct ? end - begin : kBlockElements;
    std::array<float, kBlockElements> weight_buffer;
    std::array<float, kBlockElements> momentum_buffer;
    for (int64_t i = begin; i < end; i += block) {
      SgdArrays arrays = {};
      set_arrays(weight, i, std::min(block, end - i), weight_buffer.data(), arrays);
      if (has_momentum) {
        arrays.momentum = load_moments(view.momentum, i, arrays.count, momentum_buffer.data());
      }
      HWY_DYNAMIC_DISPATCH(update)(arrays, view, constants);
      store_weights(weight, i, arrays.count, arrays.weights);
      if (has_momentum) {
        store_moments(view.momentum, i, arrays.count, arrays.momentum);
      }
    }
  });
}

}  // namespace mantissa::ops::cpu
#endif
