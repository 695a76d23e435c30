#include "mantissa/ops/cpu/right_angle_kernel.h"

// Vectors of a size that is known when this is compiled: they are held in arrays.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/right_angle_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::CappedTag<float, kColumns> kFloats;
using Floats = hn::Vec<decltype(kFloats)>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(kFloats));
static_assert(kColumns % kLanes == 0);

// A row of the array: real parts, imaginary parts.
constexpr int64_t kRow = 2 * kColumns;

struct Complex {
  Floats re, im;
};

HWY_INLINE Complex load(const float* from) {
  return {hn::LoadU(kFloats, from), hn::LoadU(kFloats, from + kColumns)};
}
HWY_INLINE void store(Complex x, float* to) {
  hn::StoreU(x.re, kFloats, to);
  hn::StoreU(x.im, kFloats, to + kColumns);
}
HWY_INLINE Complex broadcast(const float* from) {
  return {hn::Set(kFloats, from[0]), hn::Set(kFloats, from[1])};
}

HWY_INLINE Complex add(Complex a, Complex b) { return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)}; }
HWY_INLINE Complex sub(Complex a, Complex b) { return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)}; }
// a + i b, a - i b
HWY_INLINE Complex add_i(Complex a, Complex b) {
  return {hn::Sub(a.re, b.im), hn::Add(a.im, b.re)};
}
HWY_INLINE Complex sub_i(Complex a, Complex b) {
  return {hn::Add(a.re, b.im), hn::Sub(a.im, b.re)};
}
HWY_INLINE Complex mul(Complex a, Complex b) {
  return {hn::NegMulAdd(a.im, b.im, hn::Mul(a.re, b.re)),
          hn::MulAdd(a.im, b.re, hn::Mul(a.re, b.im))};
}
// a times the conjugate of b
HWY_INLINE Complex mul_conj(Complex a, Complex b) {
  return {hn::MulAdd(a.im, b.im, hn::Mul(a.re, b.re)),
          hn::NegMulAdd(a.re, b.im, hn::Mul(a.im, b.re))};
}

struct Factors {
  Complex z1, z2, z3;
};

// The values of a0 + a1 z + a2 z^2 + a3 z^3 at z, i z, -z and -i z.
HWY_INLINE void forward_step(const Factors& z, Complex& a0, Complex& a1, Complex& a2, Complex& a3) {
  const Complex b1 = mul(a1, z.z1);
  const Complex b2 = mul(a2, z.z2);
  const Complex b3 = mul(a3, z.z3);
  const Complex even = add(a0, b2);
  const Complex odd = sub(a0, b2);
  const Complex sum = add(b1, b3);
  const Complex difference = sub(b1, b3);
  a0 = add(even, sum);
  a1 = add_i(odd, difference);
  a2 = sub(even, sum);
  a3 = sub_i(odd, difference);
}

// Its inverse, times 4.
HWY_INLINE void inverse_step(const Factors& z, Complex& a0, Complex& a1, Complex& a2, Complex& a3) {
  const Complex even = add(a0, a2);
  const Complex odd = sub(a0, a2);
  const Complex sum = add(a1, a3);
  const Complex difference = sub(a1, a3);
  a0 = add(even, sum);
  a1 = mul_conj(sub_i(odd, difference), z.z1);
  a2 = mul_conj(sub(even, sum), z.z2);
  a3 = mul_conj(add_i(odd, difference), z.z3);
}

HWY_INLINE Factors factors_of(const RightAnglePlan& plan, int64_t step, int64_t block) {
  const float* z = plan.steps[static_cast<size_t>(step)].factors.data() + 6 * block;
  return {broadcast(z), broadcast(z + 2), broadcast(z + 4)};
}

template <bool kInverse>
HWY_INLINE void step_rows(const Factors& z, float* data, int64_t rows) {
  const int64_t quarter = rows / 4 * kRow;
  for (int64_t row = 0; row < quarter; row += kRow) {
    for (int64_t lane = 0; lane < kColumns; lane += kLanes) {
      float* at = data + row + lane;
      Complex a0 = load(at);
      Complex a1 = load(at + quarter);
      Complex a2 = load(at + 2 * quarter);
      Complex a3 = load(at + 3 * quarter);
      if constexpr (kInverse) {
        inverse_step(z, a0, a1, a2, a3);
      } else {
        forward_step(z, a0, a1, a2, a3);
      }
      store(a0, at);
      store(a1, at + quarter);
      store(a2, at + 2 * quarter);
      store(a3, at + 3 * quarter);
    }
  }
}

// Transposition: 4 columns from `from` on of kLanes rows, of real or of imaginary parts. A vector
// of rows is put together of 4 numbers of each fourth row, and blocks of 4 by 4 turned.

#if HWY_TARGET != HWY_SCALAR
template <typename D>
HWY_INLINE hn::Vec<D> load_quads(D d, const float* from, int64_t stride) {
  constexpr size_t kSize = hn::MaxLanes(D());
  if constexpr (kSize == 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_quads(half, from + kSize / 8 * stride, stride),
                       load_quads(half, from, stride));
  }
}

template <typename D>
HWY_INLINE void store_quads(D d, hn::Vec<D> x, float* to, int64_t stride) {
  constexpr size_t kSize = hn::MaxLanes(D());
  if constexpr (kSize == 4) {
    hn::StoreU(x, d, to);
  } else {
    const hn::Half<D> half;
    store_quads(half, hn::LowerHalf(half, x), to, stride);
    store_quads(half, hn::UpperHalf(half, x), to + kSize / 8 * stride, stride);
  }
}

HWY_INLINE void turn_blocks(Floats& a, Floats& b, Floats& c, Floats& d) {
  constexpr hn::Repartition<double, decltype(kFloats)> kPairs;
  const auto ab_low = hn::BitCast(kPairs, hn::InterleaveLower(kFloats, a, b));
  const auto ab_high = hn::BitCast(kPairs, hn::InterleaveUpper(kFloats, a, b));
  const auto cd_low = hn::BitCast(kPairs, hn::InterleaveLower(kFloats, c, d));
  const auto cd_high = hn::BitCast(kPairs, hn::InterleaveUpper(kFloats, c, d));
  a = hn::BitCast(kFloats, hn::InterleaveLower(kPairs, ab_low, cd_low));
  b = hn::BitCast(kFloats, hn::InterleaveUpper(kPairs, ab_low, cd_low));
  c = hn::BitCast(kFloats, hn::InterleaveLower(kPairs, ab_high, cd_high));
  d = hn::BitCast(kFloats, hn::InterleaveUpper(kPairs, ab_high, cd_high));
}

HWY_INLINE void load_turned(const float* from, Floats& a, Floats& b, Floats& c, Floats& d) {
  a = load_quads(kFloats, from, 4 * kRow);
  b = load_quads(kFloats, from + kRow, 4 * kRow);
  c = load_quads(kFloats, from + 2 * kRow, 4 * kRow);
  d = load_quads(kFloats, from + 3 * kRow, 4 * kRow);
  turn_blocks(a, b, c, d);
}

HWY_INLINE void store_turned(Floats a, Floats b, Floats c, Floats d, float* to) {
  turn_blocks(a, b, c, d);
  store_quads(kFloats, a, to, 4 * kRow);
  store_quads(kFloats, b, to + kRow, 4 * kRow);
  store_quads(kFloats, c, to + 2 * kRow, 4 * kRow);
  store_quads(kFloats, d, to + 3 * kRow, 4 * kRow);
}
#else
HWY_INLINE void load_turned(const float* from, Floats& a, Floats& b, Floats& c, Floats& d) {
  a = hn::Set(kFloats, from[0]);
  b = hn::Set(kFloats, from[1]);
  c = hn::Set(kFloats, from[2]);
  d = hn::Set(kFloats, from[3]);
}

HWY_INLINE void store_turned(Floats a, Floats b, Floats c, Floats d, float* to) {
  to[0] = hn::GetLane(a);
  to[1] = hn::GetLane(b);
  to[2] = hn::GetLane(c);
  to[3] = hn::GetLane(d);
}
#endif

// A polynomial of kColumns coefficients in each lane, and then its values.
using Values = Complex[kColumns];

// Of the last two steps, for kLanes rows: the first has the factor x^4, the second e^(2 pi i s /
// 16) x in its block s.
struct LastFactors {
  explicit HWY_INLINE LastFactors(const float* values) {
    const Complex x = load(values);
    const Complex x2 = mul(x, x);
    const Complex x3 = mul(x2, x);
    const Complex x4 = load(values + kRow);
    const Complex x8 = mul(x4, x4);
    first = {x4, x8, mul(x8, x4)};
    second[0] = {x, x2, x3};
    // Cosines of sixteenths of a turn: 1/16, 1/8, 3/16.
    const auto turned = [](Complex a, float cosine, float sine) HWY_ATTR {
      return mul(a, Complex{hn::Set(kFloats, cosine), hn::Set(kFloats, sine)});
    };
    constexpr float kC1 = 0.92387953251F;
    constexpr float kC2 = 0.70710678119F;
    constexpr float kC3 = 0.38268343237F;
    const Floats zero = hn::Zero(kFloats);
    second[1] = {turned(x, kC1, kC3), turned(x2, kC2, kC2), turned(x3, kC3, kC1)};
    second[2] = {turned(x, kC2, kC2), {hn::Sub(zero, x2.im), x2.re}, turned(x3, -kC2, kC2)};
    second[3] = {turned(x, kC3, kC1), turned(x2, -kC2, kC2), turned(x3, -kC1, -kC3)};
  }
  Factors first;
  Factors second[4];
};

HWY_INLINE void last_forward(const LastFactors& z, const float* rows, Values& x) {
  for (int64_t v = 0; v < kColumns; v += 4) {
    load_turned(rows + v, x[v].re, x[v + 1].re, x[v + 2].re, x[v + 3].re);
    load_turned(rows + kColumns + v, x[v].im, x[v + 1].im, x[v + 2].im, x[v + 3].im);
  }
  for (int64_t v = 0; v < 4; ++v) {
    forward_step(z.first, x[v], x[4 + v], x[8 + v], x[12 + v]);
  }
  for (int64_t s = 0; s < 4; ++s) {
    forward_step(z.second[s], x[4 * s], x[4 * s + 1], x[4 * s + 2], x[4 * s + 3]);
  }
}

HWY_INLINE void last_inverse(const LastFactors& z, Values& x, float* rows) {
  for (int64_t s = 0; s < 4; ++s) {
    inverse_step(z.second[s], x[4 * s], x[4 * s + 1], x[4 * s + 2], x[4 * s + 3]);
  }
  for (int64_t v = 0; v < 4; ++v) {
    inverse_step(z.first, x[v], x[4 + v], x[8 + v], x[12 + v]);
  }
  for (int64_t v = 0; v < kColumns; v += 4) {
    store_turned(x[v].re, x[v + 1].re, x[v + 2].re, x[v + 3].re, rows + v);
    store_turned(x[v].im, x[v + 1].im, x[v + 2].im, x[v + 3].im, rows + kColumns + v);
  }
}

// What is done between the forward and the inverse transform of the array `data`, with spectra of
// the same tile and lanes.

struct KeepSpectrum {
  static constexpr bool kForward = true;
  static constexpr bool kSecond = false;
  bool inverse() const { return false; }
  float scale;
  float* spectrum;

  HWY_INLINE void apply(int64_t at, Values& x, const Values* /*second*/) const {
    const Floats factor = hn::Set(kFloats, scale);
    for (int64_t v = 0; v < kColumns; ++v) {
      store({hn::Mul(x[v].re, factor), hn::Mul(x[v].im, factor)}, spectrum + at + v * kRow);
    }
  }
};

template <bool kConjugate>
struct Multiply {
  static constexpr bool kForward = true;
  static constexpr bool kSecond = false;
  bool inverse() const { return true; }
  const float* spectrum;

  HWY_INLINE void apply(int64_t at, Values& x, const Values* /*second*/) const {
    for (int64_t v = 0; v < kColumns; ++v) {
      const Complex factor = load(spectrum + at + v * kRow);
      x[v] = kConjugate ? mul_conj(x[v], factor) : mul(x[v], factor);
    }
  }
};

struct Correlate {
  static constexpr bool kForward = true;
  static constexpr bool kSecond = true;
  bool inverse() const { return spectrum != nullptr; }
  const float* spectrum;  // may be null
  float* sum;

  HWY_INLINE void apply(int64_t at, Values& x, const Values* second) const {
    for (int64_t v = 0; v < kColumns; ++v) {
      float* to = sum + at + v * kRow;
      store(add(load(to), mul_conj(x[v], (*second)[v])), to);
      if (spectrum != nullptr) {
        x[v] = mul_conj(x[v], load(spectrum + at + v * kRow));
      }
    }
  }
};

struct TakeSpectrum {
  static constexpr bool kForward = false;
  static constexpr bool kSecond = false;
  bool inverse() const { return true; }
  float scale;
  const float* spectrum;

  HWY_INLINE void apply(int64_t at, Values& x, const Values* /*second*/) const {
    const Floats factor = hn::Set(kFloats, scale);
    for (int64_t v = 0; v < kColumns; ++v) {
      const Complex value = load(spectrum + at + v * kRow);
      x[v] = {hn::Mul(value.re, factor), hn::Mul(value.im, factor)};
    }
  }
};

template <typename Middle>
struct Transform {
  const RightAnglePlan& plan;
  const Middle& middle;
  float* data;
  float* second;

  // kColumns rows from the array's row `row` on, of which the last two steps of columns are left.
  void tile(int64_t step, int64_t row) const {
    const int64_t begin = row * kRow;
    const auto columns = [&](float* array) HWY_ATTR {
      step_rows<false>(factors_of(plan, step, row / 16), array + begin, 16);
      for (int64_t four = 0; four < 16; four += 4) {
        step_rows<false>(factors_of(plan, step + 1, (row + four) / 4), array + begin + four * kRow,
                         4);
      }
    };
    if constexpr (Middle::kForward) {
      columns(data);
    }
    if constexpr (Middle::kSecond) {
      columns(second);
    }
    for (int64_t lane = 0; lane < kColumns; lane += kLanes) {
      const LastFactors z(plan.values.data() + row * 4 + lane);
      Values x;
      if constexpr (Middle::kSecond) {
        Values other;
        last_forward(z, second + begin + lane * kRow, other);
        last_forward(z, data + begin + lane * kRow, x);
        middle.apply(begin + lane, x, &other);
      } else {
        if constexpr (Middle::kForward) {
          last_forward(z, data + begin + lane * kRow, x);
        }
        middle.apply(begin + lane, x, nullptr);
      }
      if (middle.inverse()) {
        last_inverse(z, x, data + begin + lane * kRow);
      }
    }
    if (middle.inverse()) {
      for (int64_t four = 0; four < 16; four += 4) {
        step_rows<true>(factors_of(plan, step + 1, (row + four) / 4), data + begin + four * kRow,
                        4);
      }
      step_rows<true>(factors_of(plan, step, row / 16), data + begin, 16);
    }
  }

  // A block of `rows` rows: forward, the middle, and back, its parts one after the other, so that
  // they stay in the cache.
  void block(int64_t step, int64_t row, int64_t rows) const {
    if (rows == 16) {
      tile(step, row);
      return;
    }
    const Factors z = factors_of(plan, step, row / rows);
    if constexpr (Middle::kForward) {
      step_rows<false>(z, data + row * kRow, rows);
    }
    if constexpr (Middle::kSecond) {
      step_rows<false>(z, second + row * kRow, rows);
    }
    for (int64_t s = 0; s < 4; ++s) {
      block(step + 1, row + s * rows / 4, rows / 4);
    }
    if (middle.inverse()) {
      step_rows<true>(factors_of(plan, step, row / rows), data + row * kRow, rows);
    }
  }

  void run() const {
    const int64_t rows = plan.rows / plan.first_radix;
    for (int64_t row = 0; row < plan.rows; row += rows) {
      block(0, row, rows);
    }
  }
};

template <typename Middle>
void transform(const RightAnglePlan& plan, const Middle& middle, float* data,
               float* second = nullptr) {
  Transform<Middle>{plan, middle, data, second}.run();
}

// The first step, of real numbers.
template <int64_t kRadix>
void first_forward(const RightAnglePlan& plan, const float* x, float* data) {
  const int64_t rows = plan.rows / kRadix;
  const float* powers = plan.first_powers.data();
  for (int64_t at = 0; at < rows * kColumns; at += kLanes) {
    float* to = data + at / kColumns * kRow + at % kColumns;
    Floats a[kRadix];
    for (int64_t p = 0; p < kRadix; ++p) {
      a[p] = hn::LoadU(kFloats, x + p * rows * kColumns + at);
    }
    for (int64_t q = 0; q < kRadix; ++q) {
      const float* power = powers + 2 * kRadix * q;
      Complex sum = {a[0], hn::Zero(kFloats)};
      for (int64_t p = 1; p < kRadix; ++p) {
        sum.re = hn::MulAdd(a[p], hn::Set(kFloats, power[2 * p]), sum.re);
        sum.im = hn::MulAdd(a[p], hn::Set(kFloats, power[2 * p + 1]), sum.im);
      }
      store(sum, to + q * rows * kRow);
    }
  }
}

// Its inverse, times the radix: real parts alone.
template <int64_t kRadix>
void first_inverse(const RightAnglePlan& plan, const float* data, float* x) {
  const int64_t rows = plan.rows / kRadix;
  const float* powers = plan.first_powers.data();
  for (int64_t at = 0; at < rows * kColumns; at += kLanes) {
    const float* from = data + at / kColumns * kRow + at % kColumns;
    Floats sum[kRadix];
    for (int64_t q = 0; q < kRadix; ++q) {
      const float* power = powers + 2 * kRadix * q;
      const Complex a = load(from + q * rows * kRow);
      sum[0] = q == 0 ? a.re : hn::Add(sum[0], a.re);
      for (int64_t p = 1; p < kRadix; ++p) {
        const Floats cosine = hn::Set(kFloats, power[2 * p]);
        const Floats sine = hn::Set(kFloats, power[2 * p + 1]);
        sum[p] = q == 0 ? hn::Mul(a.re, cosine) : hn::MulAdd(a.re, cosine, sum[p]);
        sum[p] = hn::MulAdd(a.im, sine, sum[p]);
      }
    }
    for (int64_t p = 0; p < kRadix; ++p) {
      hn::StoreU(sum[p], kFloats, x + p * rows * kColumns + at);
    }
  }
}

// Calls function.operator()<first radix of the plan>().
template <typename Function>
HWY_INLINE void with_first_radix(const RightAnglePlan& plan, const Function& function) {
  switch (plan.first_radix) {
    case 1:
      return function.template operator()<1>();
    case 2:
      return function.template operator()<2>();
    case 3:
      return function.template operator()<3>();
    case 4:
      return function.template operator()<4>();
    case 5:
      return function.template operator()<5>();
    case 6:
      return function.template operator()<6>();
    case 7:
      return function.template operator()<7>();
    case 8:
      return function.template operator()<8>();
    case 9:
      return function.template operator()<9>();
    case 10:
      return function.template operator()<10>();
    case 12:
      return function.template operator()<12>();
    default:
      return function.template operator()<14>();
  }
}

void spread(const RightAnglePlan& plan, const float* x, float* data) {
  with_first_radix(plan, [&]<int64_t kRadix>() { first_forward<kRadix>(plan, x, data); });
}

void gather(const RightAnglePlan& plan, const float* data, float* x) {
  with_first_radix(plan, [&]<int64_t kRadix>() { first_inverse<kRadix>(plan, data, x); });
}

float reciprocal_size(const RightAnglePlan& plan) { return 1 / static_cast<float>(plan.size()); }

void filter_spectrum(const RightAnglePlan& plan, const float* filter, float* work,
                     float* spectrum) {
  spread(plan, filter, work);
  transform(plan, KeepSpectrum{reciprocal_size(plan), spectrum}, work);
}

void convolve(const RightAnglePlan& plan, const float* spectrum, const float* x, float* work,
              float* out) {
  spread(plan, x, work);
  transform(plan, Multiply<false>{spectrum}, work);
  gather(plan, work, out);
}

void correlate(const RightAnglePlan& plan, const float* spectrum, const float* grad, float* work,
               float* out) {
  spread(plan, grad, work);
  transform(plan, Multiply<true>{spectrum}, work);
  gather(plan, work, out);
}

void correlate_both(const RightAnglePlan& plan, const float* spectrum, const float* grad,
                    const float* x, float* work, float* more_work, float* sum, float* out) {
  spread(plan, grad, work);
  spread(plan, x, more_work);
  transform(plan, Correlate{out == nullptr ? nullptr : spectrum, sum}, work, more_work);
  if (out != nullptr) {
    gather(plan, work, out);
  }
}

void filter_gradient(const RightAnglePlan& plan, const float* sum, float* work, float* out) {
  transform(plan, TakeSpectrum{reciprocal_size(plan), sum}, work);
  gather(plan, work, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops::cpu {

HWY_EXPORT(filter_spectrum);
HWY_EXPORT(convolve);
HWY_EXPORT(correlate);
HWY_EXPORT(correlate_both);
HWY_EXPORT(filter_gradient);

void filter_spectrum(const RightAnglePlan& plan, const float* filter, float* work,
                     float* spectrum) {
  HWY_DYNAMIC_DISPATCH(filter_spectrum)(plan, filter, work, spectrum);
}

void convolve(const RightAnglePlan& plan, const float* spectrum, const float* x, float* work,
              float* out) {
  HWY_DYNAMIC_DISPATCH(convolve)(plan, spectrum, x, work, out);
}

void correlate(const RightAnglePlan& plan, const float* spectrum, const float* grad, float* work,
               float* out) {
  HWY_DYNAMIC_DISPATCH(correlate)(plan, spectrum, grad, work, out);
}

void correlate_both(const RightAnglePlan& plan, const float* spectrum, const float* grad,
                    const float* x, float* work, float* more_work, float* sum, float* out) {
  HWY_DYNAMIC_DISPATCH(correlate_both)(plan, spectrum, grad, x, work, more_work, sum, out);
}

void filter_gradient(const RightAnglePlan& plan, const float* sum, float* work, float* out) {
  HWY_DYNAMIC_DISPATCH(filter_gradient)(plan, sum, work, out);
}

}  // namespace mantissa::ops::cpu
#endif
