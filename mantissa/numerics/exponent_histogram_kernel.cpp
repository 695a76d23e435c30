#include "mantissa/numerics/exponent_histogram_kernel.h"

#include <algorithm>

// Vectors of a size that is known when this is compiled: they are held in arrays.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/numerics/exponent_histogram_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "mantissa/numerics/convert_lanes-inl.h"

// Reads each number once (2 or 4 bytes) and writes nothing. Counting in bins is a scalar increment
// a number, in four tables, because one that waits for the last of the same bin takes longer.
HWY_BEFORE_NAMESPACE();
namespace mantissa::numerics::kernels {
namespace HWY_NAMESPACE {

constexpr size_t kLanes = hn::MaxLanes(kFloats);
constexpr size_t kTables = 4;

template <Format kFormat>
struct Source {
  using Element = Stored<kFormat>;
  static HWY_INLINE Floats read(const Element* in) {
    return decode_stored<kFormat>(hn::LoadU(StoredTag<kFormat>(), in));
  }
};

template <>
struct Source<Format::fp32> {
  using Element = float;
  static HWY_INLINE Floats read(const float* in) { return hn::LoadU(kFloats, in); }
};

class Counter {
 public:
  explicit Counter(const Limits& limits) {
    std::copy(limits.begin(), limits.end(), limits_);
    std::fill(below_, below_ + kNumLimits, hn::Zero(kInts));
  }

  HWY_INLINE void add(Floats values) {
    const Words bits = hn::BitCast(kWords, values);
    const Words magnitude = hn::And(bits, word(0x7FFFFFFF));
    HWY_ALIGN uint32_t exponents[kLanes];
    hn::Store(hn::ShiftRight<23>(magnitude), kWords, exponents);
#pragma GCC unroll 16
    for (size_t i = 0; i < kLanes; ++i) {
      ++tables_[i % kTables][exponents[i]];
    }
    // As integers magnitudes have the order of the numbers.
    const Ints m = hn::BitCast(kInts, magnitude);
#pragma GCC unroll 16
    for (size_t t = 0; t < kNumLimits; ++t) {
      count(hn::Lt(m, hn::Set(kInts, static_cast<int32_t>(limits_[t]))), below_[t]);
    }
    const Ints infinity = hn::Set(kInts, static_cast<int32_t>(kFloatInfinity));
    count(hn::Eq(m, hn::Zero(kInts)), zeros_);
    count(hn::Gt(m, infinity), nan_);
    count(hn::Eq(hn::BitCast(kInts, bits), hn::Set(kInts, INT32_MIN | kFloatInfinityInt)),
          negative_infinity_);
    largest_ = hn::Max(largest_, hn::IfThenElseZero(hn::Lt(m, infinity), m));
    smallest_ = hn::Min(smallest_, hn::Sub(magnitude, word(1)));  // of 0 the largest word
  }

  // Without `padding` zeros that were added too.
  ExponentCounts read(size_t padding) const {
    ExponentCounts counts;
    for (size_t bin = 0; bin < counts.bins.size(); ++bin) {
      for (const auto& table : tables_) {
        counts.bins[bin] += table[bin];
      }
    }
    const auto zeros = static_cast<int64_t>(padding);
    counts.bins[0] -= static_cast<uint32_t>(padding);
    for (size_t t = 0; t < kNumLimits; ++t) {
      counts.below[t] = sum(below_[t]) - zeros;
    }
    counts.zeros = sum(zeros_) - zeros;
    counts.nan = sum(nan_);
    counts.negative_infinity = sum(negative_infinity_);
    HWY_ALIGN uint32_t words[kLanes];
    hn::Store(hn::BitCast(kWords, largest_), kWords, words);
    counts.largest = *std::max_element(words, words + kLanes);
    hn::Store(smallest_, kWords, words);
    counts.smallest_minus_1 = *std::min_element(words, words + kLanes);
    return counts;
  }

 private:
  static constexpr int32_t kFloatInfinityInt = static_cast<int32_t>(kFloatInfinity);

  template <typename Mask>
  static HWY_INLINE void count(Mask holds, Ints& sum) {
    sum = hn::Sub(sum, hn::VecFromMask(kInts, holds));
  }

  static int64_t sum(Ints values) {
    HWY_ALIGN int32_t lanes[kLanes];
    hn::Store(values, kInts, lanes);
    int64_t total = 0;
    for (const int32_t lane : lanes) {
      total += lane;
    }
    return total;
  }

  uint32_t tables_[kTables][256] = {};
  uint32_t limits_[kNumLimits];
  Ints below_[kNumLimits];
  Ints zeros_ = hn::Zero(kInts);
  Ints nan_ = hn::Zero(kInts);
  Ints negative_infinity_ = hn::Zero(kInts);
  Ints largest_ = hn::Zero(kInts);
  Words smallest_ = word(0xFFFFFFFF);
};

template <Format kFormat>
ExponentCounts count_as(const void* values, size_t size, const Limits& limits) {
  using Element = typename Source<kFormat>::Element;
  const auto* in = static_cast<const Element*>(values);
  Counter counter(limits);
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    counter.add(Source<kFormat>::read(in + i));
  }
  const size_t rest = size - i;
  if (rest > 0) {
    HWY_ALIGN Element last[kLanes] = {};
    std::copy(in + i, in + size, last);
    counter.add(Source<kFormat>::read(last));
  }
  return counter.read(rest > 0 ? kLanes - rest : 0);
}

ExponentCounts count_exponents(Format format, const void* values, size_t size,
                               const Limits& limits) {
  switch (format) {
    case Format::bf16:
      return count_as<Format::bf16>(values, size, limits);
    case Format::fp16:
      return count_as<Format::fp16>(values, size, limits);
    default:
      return count_as<Format::fp32>(values, size, limits);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::numerics::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::numerics::kernels {

HWY_EXPORT(count_exponents);

ExponentCounts count_exponents(Format format, const void* values, size_t size,
                               const Limits& limits) {
  return HWY_DYNAMIC_DISPATCH(count_exponents)(format, values, size, limits);
}

}  // namespace mantissa::numerics::kernels
#endif
