#include "mantissa/ops/cpu/activation_kernel.h"

#include <algorithm>

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/activation_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "mantissa/ops/cpu/exp_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using numerics::kernels::HWY_NAMESPACE::Floats;
using numerics::kernels::HWY_NAMESPACE::kFloats;

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

// The numbers from `i` on: whole vectors, and fewer at the end.
struct Whole {
  int64_t i;
  HWY_INLINE Floats load(const float* from) const { return hn::LoadU(kFloats, from + i); }
  HWY_INLINE void store(Floats numbers, float* to) const { hn::StoreU(numbers, kFloats, to + i); }
};

struct Rest {
  int64_t i;
  int64_t count;
  HWY_INLINE Floats load(const float* from) const {
    HWY_ALIGN float numbers[hn::MaxLanes(kFloats)] = {};
    std::copy_n(from + i, count, numbers);
    return hn::Load(kFloats, numbers);
  }
  HWY_INLINE void store(Floats numbers, float* to) const {
    HWY_ALIGN float all[hn::MaxLanes(kFloats)];
    hn::Store(numbers, kFloats, all);
    std::copy_n(all, count, to + i);
  }
};

template <typename Body>
HWY_INLINE void for_vectors(int64_t count, const Body& body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(kFloats));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    body(Whole{i});
  }
  if (i < count) {
    body(Rest{i, count - i});
  }
}

void gelu(const float* x, int64_t count, float* out) {
  for_vectors(count,
              [&](const auto& part) HWY_ATTR { part.store(gelu_of(part.load(x)).out, out); });
}

// The derivative is gate + x gate (1 - gate) 2 z', z' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2).
void gelu_gradient(const float* x_in, const float* grad_out, int64_t count, float* out,
                   float* grad_x) {
  for_vectors(count, [&](const auto& part) HWY_ATTR {
    const Floats x = part.load(x_in);
    const Floats gradient = part.load(grad_out);
    const Gelu y = gelu_of(x);
    const Floats slope =
        hn::MulAdd(number(3 * kCubic * kTwiceRoot), hn::Mul(x, x), number(kTwiceRoot));
    const Floats derivative = hn::MulAdd(hn::Mul(y.out, hn::Sub(number(1), y.gate)), slope, y.gate);
    part.store(y.out, out);
    part.store(hn::Mul(gradient, derivative), grad_x);
  });
}

void swiglu(const float* gate, const float* up, int64_t count, float* out) {
  for_vectors(count, [&](const auto& part) HWY_ATTR {
    const Floats x = part.load(gate);
    part.store(hn::Mul(hn::Mul(x, sigmoid(x)), part.load(up)), out);
  });
}

// With s = sigmoid(gate): the derivative of gate s is s (1 + gate (1 - s)).
void swiglu_gradient(const float* gate, const float* up_in, const float* grad_out, int64_t count,
                     float* out, float* grad_gate, float* grad_up) {
  for_vectors(count, [&](const auto& part) HWY_ATTR {
    const Floats x = part.load(gate);
    const Floats up = part.load(up_in);
    const Floats gradient = part.load(grad_out);
    const Floats s = sigmoid(x);
    const Floats silu = hn::Mul(x, s);
    const Floats derivative = hn::Mul(s, hn::MulAdd(x, hn::Sub(number(1), s), number(1)));
    part.store(hn::Mul(silu, up), out);
    part.store(hn::Mul(hn::Mul(gradient, up), derivative), grad_gate);
    part.store(hn::Mul(gradient, silu), grad_up);
  });
}

void rotate(const float* x, const float* cosine, const float* sine, int64_t heads, int64_t half,
            bool inverse, float* out) {
  const Floats sign = number(inverse ? -1 : 1);
  for (int64_t head = 0; head < heads; ++head) {
    const float* low = x + head * 2 * half;
    float* to = out + head * 2 * half;
    for_vectors(half, [&](const auto& part) HWY_ATTR {
      const Floats a = part.load(low);
      const Floats b = part.load(low + half);
      const Floats c = part.load(cosine);
      const Floats s = hn::Mul(part.load(sine), sign);
      part.store(hn::NegMulAdd(b, s, hn::Mul(a, c)), to);
      part.store(hn::MulAdd(a, s, hn::Mul(b, c)), to + half);
    });
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
