#include "mantissa/ops/cpu/attention_kernel.h"

#include <algorithm>
#include <limits>

// Vectors of a size that is known when this is compiled, as for products.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/attention_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "mantissa/ops/cpu/exp_lanes-inl.h"
#include "mantissa/ops/cpu/register_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {

static_assert(kCols <= kMostStripCols);

using Columns = hn::RebindToSigned<decltype(kFloats)>;
constexpr Columns kColumns;

HWY_INLINE Floats number(float value) { return hn::Set(kFloats, value); }

HWY_INLINE Floats minus_infinity() { return number(-std::numeric_limits<float>::infinity()); }

template <bool kTf32>
HWY_INLINE Floats as_factor(Floats value) {
  return kTf32 ? lanes::round_lanes<numerics::Format::tf32>(value) : value;
}

// A row or column number in 32 bits: strips are shorter.
HWY_INLINE int32_t clamped(int64_t index) {
  return static_cast<int32_t>(std::clamp<int64_t>(index, -kMostStripCols, kMostStripCols));
}

using Row = Floats[kVectors];

HWY_INLINE void load(const float* from, Row& row) {
  for (int64_t j = 0; j < kVectors; ++j) {
    row[j] = hn::LoadU(kFloats, from + j * kLanes);
  }
}

HWY_INLINE void store(const Row& row, float* to) {
  for (int64_t j = 0; j < kVectors; ++j) {
    hn::StoreU(row[j], kFloats, to + j * kLanes);
  }
}

// Scaled and masked scores in place, and the largest of each column; NaN may be passed over.
HWY_INLINE void scale_scores(const SoftmaxStrip& strip, Row& max) {
  const Floats scale = number(strip.scale);
  for (int64_t i = 0; i < strip.rows; ++i) {
    float* const scores = strip.scores + i * kCols;
    const auto hidden =
        hn::Set(kColumns, strip.diagonal == kAllVisible ? 0 : clamped(i - strip.diagonal));
    for (int64_t j = 0; j < kVectors; ++j) {
      const int64_t first = j * kLanes;
      Floats score = hn::Mul(hn::Load(kFloats, scores + first), scale);
      if (strip.mask != nullptr) {
        score = hn::Add(score, hn::Load(kFloats, strip.mask + i * kCols + first));
      }
      if (strip.diagonal != kAllVisible) {
        const auto column = hn::Iota(kColumns, static_cast<int32_t>(first));
        score = hn::IfThenElse(hn::RebindMask(kFloats, hn::Lt(column, hidden)), minus_infinity(),
                               score);
      }
      max[j] = hn::Max(score, max[j]);
      hn::Store(score, kFloats, scores + first);
    }
  }
}

template <bool kTf32>
void softmax_as(const SoftmaxStrip& strip) {
  Row max;
  Row base;
  Row correction;
  Row sum;
  load(strip.max, max);
  load(strip.max, correction);
  load(strip.sum, sum);
  scale_scores(strip, max);
  store(max, strip.max);
  for (int64_t j = 0; j < kVectors; ++j) {
    // Where nothing is visible so far all exponentials are 0.
    base[j] = hn::IfThenElse(hn::Eq(max[j], minus_infinity()), hn::Zero(kFloats), max[j]);
    correction[j] = exp_nonpositive(hn::Sub(correction[j], base[j]));
    sum[j] = hn::Mul(sum[j], correction[j]);
  }
  store(correction, strip.correction);
  for (int64_t i = 0; i < strip.rows; ++i) {
    float* const scores = strip.scores + i * kCols;
    for (int64_t j = 0; j < kVectors; ++j) {
      const Floats score = hn::Load(kFloats, scores + j * kLanes);
      const Floats power = exp_nonpositive(hn::Sub(score, base[j]));
      sum[j] = hn::Add(sum[j], power);
      hn::Store(as_factor<kTf32>(power), kFloats, scores + j * kLanes);
    }
  }
  store(sum, strip.sum);
}

template <bool kTf32>
void softmax_gradient_as(const SoftmaxGradientStrip& strip) {
  const Floats scale = number(strip.scale);
  for (int64_t i = 0; i < strip.rows; ++i) {
    const Floats logsumexp = number(strip.logsumexp[i]);
    const Floats delta = number(strip.delta[i]);
    const int64_t visible =
        strip.diagonal == kAllVisible ? strip.cols : std::min(strip.cols, i + strip.diagonal + 1);
    const auto end = hn::Set(kColumns, clamped(visible));
    for (int64_t first = 0; first < kCols; first += kLanes) {
      float* const scores = strip.scores + i * kCols + first;
      float* const gradients = strip.gradients + i * kCols + first;
      Floats score = hn::Mul(hn::Load(kFloats, scores), scale);
      if (strip.mask != nullptr) {
        score = hn::Add(score, hn::Load(kFloats, strip.mask + i * kCols + first));
      }
      const Floats power = exp_lanes(hn::Sub(score, logsumexp));
      const Floats gradient =
          hn::Mul(hn::Mul(power, scale), hn::Sub(hn::Load(kFloats, gradients), delta));
      const auto inside =
          hn::RebindMask(kFloats, hn::Lt(hn::Iota(kColumns, static_cast<int32_t>(first)), end));
      hn::Store(hn::IfThenElseZero(inside, as_factor<kTf32>(power)), kFloats, scores);
      hn::Store(hn::IfThenElseZero(inside, as_factor<kTf32>(gradient)), kFloats, gradients);
    }
  }
}

void softmax(const SoftmaxStrip& strip) {
  strip.round_to_tf32 ? softmax_as<true>(strip) : softmax_as<false>(strip);
}

void softmax_gradient(const SoftmaxGradientStrip& strip) {
  strip.round_to_tf32 ? softmax_gradient_as<true>(strip) : softmax_gradient_as<false>(strip);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops::cpu {

HWY_EXPORT(softmax);
HWY_EXPORT(softmax_gradient);

void softmax(const SoftmaxStrip& strip) { HWY_DYNAMIC_DISPATCH(softmax)(strip); }

void softmax_gradient(const SoftmaxGradientStrip& strip) {
  HWY_DYNAMIC_DISPATCH(softmax_gradient)(strip);
}

}  // namespace mantissa::ops::cpu
#endif
