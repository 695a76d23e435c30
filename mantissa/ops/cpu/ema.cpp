#include <algorithm>
#include <array>

#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/cpu/weights.h"

// Vectors of a size that is known when this is compiled.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/ema.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "mantissa/ops/cpu/element_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {

void average(float* shadows, const float* weights, int64_t count, float rate) {
  const Floats part = hn::Set(kFloats, rate);
  for_vectors(
      count,
      [&](float* shadow, const float* weight) HWY_ATTR {
        const Floats before = hn::LoadU(kFloats, shadow);
        const Floats difference = hn::Sub(hn::LoadU(kFloats, weight), before);
        hn::StoreU(hn::Add(before, hn::Mul(part, difference)), kFloats, shadow);
      },
      shadows, weights);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops::cpu {

HWY_EXPORT(average);

// 8 bytes an element for the shadow, 4 or less for the weight.
void ema(const std::vector<EmaView>& parameters, float rate) {
  std::vector<int64_t> sizes;
  sizes.reserve(parameters.size());
  for (const EmaView& parameter : parameters) {
    sizes.push_back(parameter.count);
  }
  const std::vector<Piece> pieces = pieces_of(sizes);
  for_pieces(pieces, [&](size_t p) {
    const auto [tensor, begin, end] = pieces[p];
    const EmaView& view = parameters[tensor];
    const int64_t block = view.weight.master != nullptr ? end - begin : kBlockElements;
    std::array<float, kBlockElements> buffer;
    for (int64_t i = begin; i < end; i += block) {
      const int64_t count = std::min(block, end - i);
      const float* weights = load_weights(view.weight, i, count, buffer.data());
      HWY_DYNAMIC_DISPATCH(average)(view.shadow + i, weights, count, rate);
    }
  });
}

}  // namespace mantissa::ops::cpu
#endif
