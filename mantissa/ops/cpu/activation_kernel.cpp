#include "mantissa/ops/cpu/activation_kernel.h"

// Vectors of a size that is known when this is compiled: they are held in arrays.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/activation_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "mantissa/ops/cpu/element_lanes-inl.h"
#include "mantissa/ops/cpu/exp_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {
HWY_INLINE Floats number(float value) { return hn::Set(kFloats, value); }

// 1 / (1 + e^-x); the quotient of e^x and 1 + e^x where x < 0, so that small ones are right too.
HWY_INLINE Floats sigmoid(Floats x) {
  const Floats power = exp_nonpositive(hn::Neg(hn::Abs(x)));
  const Floats above = hn::IfThenElse(hn::Lt(x, hn::Zero(kFloats)), power, number(1));
  return hn::Div(above, hn::Add(number(1), power));
}

constexpr float kTwiceRoot = 1.5957691216F;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

struct Gelu {
  Floats gate;  // sigmoid(2 z)
  Floats out;
};

HWY_INLINE Gelu gelu_of(Floats x) {
  const Floats square = hn::Mul(x, x);
  const Floats z =
      hn::Mul(hn::Mul(number(kTwiceRoot), x), hn::MulAdd(number(kCubic), square, number(1)));
  const Floats gate = sigmoid(z);
  return {gate, hn::Mul(x, gate)};
}

void gelu(const float* x, int64_t count, float* out) {
  for_vectors(
      count,
      [](const float* from, float* to)
          HWY_ATTR { hn::StoreU(gelu_of(hn::LoadU(kFloats, from)).out, kFloats, to); },
      x, out);
}

// The derivative is gate + x gate (1 - gate) 2 z', z' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2).
void gelu_gradient(const float* x, const float* grad_out, int64_t count, float* out,
                   float* grad_x) {
  for_vectors(
      count,
      [](const float* x_at, const float* grad_out_at, float* out_at, float* grad_x_at) HWY_ATTR {
        const Floats value = hn::LoadU(kFloats, x_at);
        const Floats gradient = hn::LoadU(kFloats, grad_out_at);
        const Gelu y = gelu_of(value);
        const Floats slope =
            hn::MulAdd(number(3 * kCubic * kTwiceRoot), hn::Mul(value, value), number(kTwiceRoot));
        const Floats derivative =
            hn::MulAdd(hn::Mul(y.out, hn::Sub(number(1), y.gate)), slope, y.gate);
        hn::StoreU(y.out, kFloats, out_at);
        hn::StoreU(hn::Mul(gradient, derivative), kFloats, grad_x_at);
      },
      x, grad_out, out, grad_x);
}

void swiglu(const float* gate, const float* up, int64_t count, float* out) {
  for_vectors(
      count,
      [](const float* gate_at, const float* up_at, float* out_at) HWY_ATTR {
        const Floats x = hn::LoadU(kFloats, gate_at);
        hn::StoreU(hn::Mul(hn::Mul(x, sigmoid(x)), hn::LoadU(kFloats, up_at)), kFloats, out_at);
      },
      gate, up, out);
}

// With s = sigmoid(gate): the derivative of gate s is s (1 + gate (1 - s)).
void swiglu_gradient(const float* gate, const float* up, const float* grad_out, int64_t count,
                     float* out, float* grad_gate, float* grad_up) {
  for_vectors(
      count,
      [](const float* gate_at, const float* up_at, const float* grad_out_at, float* out_at,
         float* grad_gate_at, float* grad_up_at) HWY_ATTR {
        const Floats x = hn::LoadU(kFloats, gate_at);
        const Floats other = hn::LoadU(kFloats, up_at);
        const Floats gradient = hn::LoadU(kFloats, grad_out_at);
        const Floats s = sigmoid(x);
        const Floats silu = hn::Mul(x, s);
        const Floats derivative = hn::Mul(s, hn::MulAdd(x, hn::Sub(number(1), s), number(1)));
        hn::StoreU(hn::Mul(silu, other), kFloats, out_at);
        hn::StoreU(hn::Mul(hn::Mul(gradient, other), derivative), kFloats, grad_gate_at);
        hn::StoreU(hn::Mul(gradient, silu), kFloats, grad_up_at);
      },
      gate, up, grad_out, out, grad_gate, grad_up);
}

void rotate(const float* x, const float* cosine, const float* sine, int64_t heads, int64_t half,
            bool inverse, float* out) {
  const Floats sign = number(inverse ? -1 : 1);
  for (int64_t head = 0; head < heads; ++head) {
    const float* low = x + head * 2 * half;
    float* to = out + head * 2 * half;
    for_vectors(
        half,
        [&](const float* low_at, const float* high_at, const float* cosine_at, const float* sine_at,
            float* out_low_at, float* out_high_at) HWY_ATTR {
          const Floats a = hn::LoadU(kFloats, low_at);
          const Floats b = hn::LoadU(kFloats, high_at);
          const Floats c = hn::LoadU(kFloats, cosine_at);
          const Floats s = hn::Mul(hn::LoadU(kFloats, sine_at), sign);
          hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), kFloats, out_low_at);
          hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), kFloats, out_high_at);
        },
        low, low + half, cosine, sine, to, to + half);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops::cpu {

HWY_EXPORT(gelu);
HWY_EXPORT(gelu_gradient);
HWY_EXPORT(swiglu);
HWY_EXPORT(swiglu_gradient);
HWY_EXPORT(rotate);

void gelu(const float* x, int64_t count, float* out) { HWY_DYNAMIC_DISPATCH(gelu)(x, count, out); }

void gelu_gradient(const float* x, const float* grad_out, int64_t count, float* out,
                   float* grad_x) {
  HWY_DYNAMIC_DISPATCH(gelu_gradient)(x, grad_out, count, out, grad_x);
}

void swiglu(const float* gate, const float* up, int64_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(swiglu)(gate, up, count, out);
}

void swiglu_gradient(const float* gate, const float* up, const float* grad_out, int64_t count,
                     float* out, float* grad_gate, float* grad_up) {
  HWY_DYNAMIC_DISPATCH(swiglu_gradient)(gate, up, grad_out, count, out, grad_gate, grad_up);
}

void rotate(const float* x, const float* cosine, const float* sine, int64_t heads, int64_t half,
            bool inverse, float* out) {
  HWY_DYNAMIC_DISPATCH(rotate)(x, cosine, sine, heads, half, inverse, out);
}

}  // namespace mantissa::ops::cpu
#endif
