#include <algorithm>
#include <bit>

#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/ops/cpu/optimizer_passes.h"

// Vectors of a size that is known when this is compiled: they are held in arrays.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/gradient_pass.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "mantissa/ops/cpu/element_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {

using lanes::Ints;
using lanes::kInts;
using lanes::kWords;
using lanes::Words;

constexpr hn::ScalableTag<double> kDoubles;
using Doubles = hn::Vec<decltype(kDoubles)>;
constexpr int64_t kDoubleLanes = static_cast<int64_t>(hn::MaxLanes(kDoubles));

// Sixteen sums of squares, each of every sixteenth element, on every instruction set: so that the
// total is the same number. An FP64 product of FP32 numbers is exact.
static_assert(kStep == 16);

class Squares {
 public:
  Squares() {
    for (Doubles& sum : sums_) {
      sum = hn::Zero(kDoubles);
    }
  }

  HWY_INLINE void add(const Floats (&step)[kStep / kLanes]) {
#pragma GCC unroll 16
    for (int64_t j = 0; j < kStep / kLanes; ++j) {
#if HWY_TARGET == HWY_SCALAR
      add(hn::PromoteTo(kDoubles, step[j]), j);
#else
      const hn::Half<decltype(kFloats)> half;
      add(hn::PromoteTo(kDoubles, hn::LowerHalf(half, step[j])), 2 * j);
      add(hn::PromoteTo(kDoubles, hn::UpperHalf(half, step[j])), 2 * j + 1);
#endif
    }
  }

  double total() const {
    HWY_ALIGN double sums[kStep];
    for (int64_t j = 0; j < kStep / kDoubleLanes; ++j) {
      hn::Store(sums_[j], kDoubles, sums + j * kDoubleLanes);
    }
    double total = 0;
    for (const double sum : sums) {
      total += sum;
    }
    return total;
  }

 private:
  HWY_INLINE void add(Doubles values, int64_t j) {
    sums_[j] = hn::MulAdd(values, values, sums_[j]);
  }

  Doubles sums_[kStep / kDoubleLanes];
};

// Of the magnitudes as integers, which have the order of the numbers.
class Counts {
 public:
  Counts() {
    for (Ints& below : below_) {
      below = hn::Zero(kInts);
    }
  }

  HWY_INLINE void add(Floats values) {
    const Words magnitude = hn::And(hn::BitCast(kWords, values), lanes::word(0x7FFFFFFF));
    const Ints m = hn::BitCast(kInts, magnitude);
#pragma GCC unroll 6
    for (size_t t = 0; t < kMagnitudeThresholds.size(); ++t) {
      const Ints threshold = hn::Set(kInts, static_cast<int32_t>(kMagnitudeThresholds[t]));
      const auto is_below = hn::Lt(m, threshold);
      below_[t] = hn::Sub(below_[t], hn::VecFromMask(kInts, is_below));
      if (t + 1 == kMagnitudeThresholds.size()) {
        largest_ = hn::Max(largest_, hn::IfThenElseZero(is_below, m));
      }
    }
    // Zero becomes the largest word.
    smallest_ = hn::Min(smallest_, hn::Sub(magnitude, lanes::word(1)));
  }

  // Without `padding` zeros that were added too.
  void read(GradientSums& sums, int64_t padding) const {
    HWY_ALIGN int32_t ints[kLanes];
    for (size_t t = 0; t < kMagnitudeThresholds.size(); ++t) {
      hn::Store(below_[t], kInts, ints);
      sums.below[t] = -padding;
      for (const int32_t count : ints) {
        sums.below[t] += count;
      }
    }
    hn::Store(largest_, kInts, ints);
    sums.largest = static_cast<uint32_t>(*std::max_element(ints, ints + kLanes));
    HWY_ALIGN uint32_t words[kLanes];
    hn::Store(smallest_, kWords, words);
    sums.smallest_minus_1 = *std::min_element(words, words + kLanes);
  }

 private:
  Ints below_[kMagnitudeThresholds.size()];
  Ints largest_ = hn::Zero(kInts);
  Words smallest_ = lanes::word(0xFFFFFFFF);
};

template <typename Source, bool kCounting>
GradientSums sums_as(const typename Source::Type* gradient, int64_t count, float inverse_scale) {
  // Of a single array the processor reads less ahead than of several.
  constexpr int64_t kReadAhead = 2 * kAhead;
  const Floats factor = hn::Set(kFloats, inverse_scale);
  Squares squares;
  [[maybe_unused]] Counts counts;
  const auto add = [&](const Floats(&step)[kStep / kLanes]) HWY_ATTR {
    squares.add(step);
    if constexpr (kCounting) {
#pragma GCC unroll 16
      for (int64_t j = 0; j < kStep / kLanes; ++j) {
        counts.add(step[j]);
      }
    }
  };
  Floats step[kStep / kLanes];
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    hwy::Prefetch(gradient + i + kReadAhead);
#pragma GCC unroll 16
    for (int64_t j = 0; j < kStep / kLanes; ++j) {
      step[j] = hn::Mul(Source::read(gradient + i + j * kLanes), factor);
    }
    add(step);
  }
  const int64_t padding = i < count ? kStep - (count - i) : 0;
  if (i < count) {
    const Rest<const typename Source::Type> rest(gradient + i, count - i);
    HWY_ALIGN float values[kStep];
    for (int64_t j = 0; j < kStep; j += kLanes) {
      hn::Store(hn::Mul(Source::read(rest.elements + j), factor), kFloats, values + j);
    }
    std::fill(values + (count - i), values + kStep, 0.0F);  // also where the factor is not finite
    for (int64_t j = 0; j < kStep / kLanes; ++j) {
      step[j] = hn::Load(kFloats, values + j * kLanes);
    }
    add(step);
  }
  GradientSums sums;
  sums.squares = squares.total();
  if constexpr (kCounting) {
    counts.read(sums, padding);
  }
  return sums;
}

GradientSums sums_of(const void* gradient, Format format, int64_t count, float inverse_scale,
                     bool counting) {
  GradientSums sums;
  with_format(format, [&]<Format kFormat>() HWY_ATTR {
    using Source = Elements<kFormat>;
    const auto* elements = static_cast<const typename Source::Type*>(gradient);
    sums = counting ? sums_as<Source, true>(elements, count, inverse_scale)
                    : sums_as<Source, false>(elements, count, inverse_scale);
  });
  return sums;
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops::cpu {

HWY_EXPORT(sums_of);

// Reads each gradient once (2 or 4 bytes an element), writes nothing.
std::vector<GradientSums> gradient_sums(const std::vector<GradientView>& gradients,
                                        float inverse_scale, bool counting) {
  std::vector<int64_t> sizes;
  sizes.reserve(gradients.size());
  for (const GradientView& gradient : gradients) {
    sizes.push_back(gradient.count);
  }
  const std::vector<Piece> pieces = pieces_of(sizes);
  std::vector<GradientSums> parts(pieces.size());
  for_pieces(pieces, [&](size_t p) {
    const auto [tensor, begin, end] = pieces[p];
    const auto& [data, dtype, count] = gradients[tensor];
    parts[p] = HWY_DYNAMIC_DISPATCH(sums_of)(element(data, dtype, begin), format_of(dtype),
                                             end - begin, inverse_scale, counting);
  });
  std::vector<GradientSums> sums(gradients.size());
  for (size_t p = 0; p < pieces.size(); ++p) {
    GradientSums& sum = sums[pieces[p].tensor];
    sum.squares += parts[p].squares;
    for (size_t t = 0; t < sum.below.size(); ++t) {
      sum.below[t] += parts[p].below[t];
    }
    sum.largest = std::max(sum.largest, parts[p].largest);
    sum.smallest_minus_1 = std::min(sum.smallest_minus_1, parts[p].smallest_minus_1);
  }
  return sums;
}

}  // namespace mantissa::ops::cpu
#endif
