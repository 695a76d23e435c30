#include "mantissa/ops/cpu/dropout_kernel.h"

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/dropout_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "mantissa/ops/cpu/element_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {

void drop(const DroppedNumbers& in) {
  const hn::Rebind<uint16_t, decltype(kFloats)> halves;
  const hn::RebindToSigned<decltype(kFloats)> ints;
  const auto threshold = hn::Set(ints, in.threshold);
  const Floats scale = hn::Set(kFloats, in.scale);
  const auto product = [&](const float* x, const uint16_t* bits) HWY_ATTR {
    const auto dropped = hn::Lt(hn::PromoteTo(ints, hn::LoadU(halves, bits)), threshold);
    const Floats factor = hn::IfThenZeroElse(hn::RebindMask(kFloats, dropped), scale);
    return hn::Mul(hn::LoadU(kFloats, x), factor);
  };
  if (in.residual == nullptr) {
    for_vectors(
        in.count,
        [&](const float* x, const uint16_t* bits, float* out)
            HWY_ATTR { hn::StoreU(product(x, bits), kFloats, out); },
        in.x, in.bits, in.out);
  } else {
    for_vectors(
        in.count,
        [&](const float* x, const float* residual, const uint16_t* bits, float* out) HWY_ATTR {
          hn::StoreU(hn::Add(product(x, bits), hn::LoadU(kFloats, residual)), kFloats, out);
        },
        in.x, in.residual, in.bits, in.out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops::cpu {

HWY_EXPORT(drop);

void drop(const DroppedNumbers& in) { HWY_DYNAMIC_DISPATCH(drop)(in); }

}  // namespace mantissa::ops::cpu
#endif
