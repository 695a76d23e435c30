// SIMD lanes of exponentials. Included once for each instruction set by files that Highway compiles
// so.
#if defined(MANTISSA_OPS_CPU_EXP_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_OPS_CPU_EXP_LANES_INL_H
#undef MANTISSA_OPS_CPU_EXP_LANES_INL_H
#else
#define MANTISSA_OPS_CPU_EXP_LANES_INL_H
#endif

#include <hwy/highway.h>

#include "mantissa/numerics/convert_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {

// e^x for every x, within 1.01 ulp, which all x were tried for; 1 for 0. Subnormal results are
// right (where the processor does not flush them), 0 below -103.98, infinity above 88.73, NaN for
// NaN.
//
// x = n ln 2 + r, |r| <= ln 2 / 2; e^r = 1 + r + r^2 p(r), with the p that makes the largest
// relative error least: 3.1e-9, of which 2^-24 is 6e-8.
HWY_INLINE numerics::kernels::HWY_NAMESPACE::Floats exp_lanes(
    numerics::kernels::HWY_NAMESPACE::Floats x) {
  namespace hn = hwy::HWY_NAMESPACE;
  using numerics::kernels::HWY_NAMESPACE::Floats;
  using numerics::kernels::HWY_NAMESPACE::kFloats;
  using numerics::kernels::HWY_NAMESPACE::kInts;
  const auto number = [](float value) HWY_ATTR { return hn::Set(kFloats, value); };
  // Beyond these the result stays what it is there. NaN is neither.
  const Floats low = number(-104);
  const Floats high = number(89);
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  x = hn::IfThenElse(hn::Gt(x, high), high, x);
  // Adding 1.5 2^23 leaves the nearest integer in the low bits of the fraction.
  constexpr float kInteger = 0x1.8p23F;
  const Floats shifted = hn::MulAdd(x, number(0x1.715476p+0F), number(kInteger));
  const Floats n = hn::Sub(shifted, number(kInteger));
  // ln 2 in two parts; the first has 10 bits, so that its product with n is exact.
  Floats r = hn::NegMulAdd(n, number(0x1.63p-1F), x);
  r = hn::NegMulAdd(n, number(-0x1.bd0106p-13F), r);
  Floats p = number(0x1.6a23dp-10F);
  p = hn::MulAdd(p, r, number(0x1.123a2p-7F));
  p = hn::MulAdd(p, r, number(0x1.5558f2p-5F));
  p = hn::MulAdd(p, r, number(0x1.555492p-3F));
  p = hn::MulAdd(p, r, number(0x1.fffffcp-2F));
  const Floats power = hn::Add(number(1), hn::MulAdd(hn::Mul(r, r), p, r));
  // 2^n may be no FP32 number; the powers of its halves are, and only the last product rounds.
  const auto integer = hn::Sub(hn::BitCast(kInts, shifted), hn::BitCast(kInts, number(kInteger)));
  const auto half = hn::ShiftRight<1>(integer);
  const auto power_of_two = [](auto exponent) HWY_ATTR {
    return hn::BitCast(kFloats, hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(kInts, 127))));
  };
  return hn::Mul(hn::Mul(power, power_of_two(half)), power_of_two(hn::Sub(integer, half)));
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#endif
