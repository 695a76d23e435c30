#include "mantissa/ops/cpu/dropout_kernel.h"

// Vectors of a size that is known when this is compiled: they are held in arrays.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
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

template <Format kX, Format kOut>
void drop_as(const DroppedNumbers& in) {
  using X = Elements<kX>;
  using Out = Elements<kOut>;
  const hn::Rebind<uint16_t, decltype(kFloats)> halves;
  const hn::RebindToSigned<decltype(kFloats)> ints;
  const auto threshold = hn::Set(ints, in.threshold);
  const Floats scale = hn::Set(kFloats, in.scale);
  const auto product = [&](const typename X::Type* x, const uint16_t* bits) HWY_ATTR {
    const auto dropped = hn::Lt(hn::PromoteTo(ints, hn::LoadU(halves, bits)), threshold);
    const Floats factor = hn::IfThenZeroElse(hn::RebindMask(kFloats, dropped), scale);
    return hn::Mul(X::read(x), factor);
  };
  const auto* x_begin = static_cast<const typename X::Type*>(in.x);
  const auto* residual_begin = static_cast<const typename Out::Type*>(in.residual);
  auto* out_begin = static_cast<typename Out::Type*>(in.out);
  if (in.residual == nullptr) {
    for_vectors(
        in.count,
        [&](const typename X::Type* x, const uint16_t* bits, typename Out::Type* out)
            HWY_ATTR { Out::write(product(x, bits), out); },
        x_begin, in.bits, out_begin);
  } else {
    for_vectors(
        in.count,
        [&](const typename X::Type* x, const typename Out::Type* residual, const uint16_t* bits,
            typename Out::Type* out)
            HWY_ATTR { Out::write(hn::Add(product(x, bits), Out::read(residual)), out); },
        x_begin, residual_begin, in.bits, out_begin);
  }
}

void drop(const DroppedNumbers& in) {
  with_format(in.x_format, [&]<Format kX>() {
    with_format(in.out_format, [&]<Format kOut>() { drop_as<kX, kOut>(in); });
  });
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
