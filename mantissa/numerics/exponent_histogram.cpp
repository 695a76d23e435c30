#include "mantissa/numerics/exponent_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/numerics/bit_pattern.h"
#include "mantissa/numerics/exponent_histogram_kernel.h"
#include "mantissa/numerics/rounding.h"

namespace mantissa::numerics {
namespace {

using kernels::ExponentCounts;
using kernels::Limits;

NumberClass class_in(Format format, uint32_t fp32_magnitude) {
  return classify(format, encode(format, std::bit_cast<float>(fp32_magnitude)));
}

// The first magnitude of FP32 that rounds to one of class `from` or a later one: rounding keeps the
// order of numbers, and classes are in that order too.
uint32_t first_of(Format format, NumberClass from) {
  uint32_t below = 0;                                                                // is zero
  uint32_t first = std::bit_cast<uint32_t>(std::numeric_limits<float>::infinity());  // the last
  while (first - below > 1) {
    const uint32_t middle = below + (first - below) / 2;
    (class_in(format, middle) < from ? below : first) = middle;
  }
  return first;
}

// From the rounding itself, so that ties go where it puts them.
const Limits& limits() {
  static const Limits limits = [] {
    Limits result{};
    size_t t = 0;
    for (const Format format : kNarrowFormats) {
      for (const NumberClass from :
           {NumberClass::subnormal, NumberClass::normal, NumberClass::infinity}) {
        result[t++] = first_of(format, from);
      }
    }
    return result;
  }();
  return limits;
}

void add(const ExponentCounts& counts, size_t size, ExponentHistogram& histogram) {
  ExponentHistogram part;
  part.count = static_cast<int64_t>(size);
  part.zeros = counts.zeros;
  part.nan = counts.nan;
  part.negative_infinity = counts.negative_infinity;
  part.positive_infinity =
      static_cast<int64_t>(counts.bins[255]) - counts.nan - counts.negative_infinity;
  std::copy(counts.bins.begin(), counts.bins.end() - 1, part.bins.begin());
  part.bins[0] -= counts.zeros;
  part.largest = std::bit_cast<float>(counts.largest);
  const auto smallest = std::bit_cast<float>(counts.smallest_minus_1 + 1);
  part.smallest = std::isfinite(smallest) ? smallest : 0;
  const int64_t finite = part.count - part.num_nonfinite();
  for (size_t f = 0; f < kNarrowFormats.size(); ++f) {
    const int64_t* below = counts.below.data() + f * kernels::kLimitsOfFormat;
    part.narrow[f] = {below[0] - part.zeros, below[1] - below[0], finite - below[2]};
  }
  histogram.merge(part);
}

template <typename Element>
ExponentHistogram histogram_of(Format format, std::span<const Element> values) {
  ExponentHistogram histogram;
  for (size_t first = 0; first < values.size(); first += kernels::kMostElements) {
    const size_t size = std::min(kernels::kMostElements, values.size() - first);
    add(kernels::count_exponents(format, values.data() + first, size, limits()), size, histogram);
  }
  return histogram;
}

void count_number(float value, ExponentHistogram& histogram) {
  ++histogram.count;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) {
    ++histogram.nan;
  } else if (std::isinf(value)) {
    ++(value > 0 ? histogram.positive_infinity : histogram.negative_infinity);
  } else if (magnitude == 0) {
    ++histogram.zeros;
  } else {
    ++histogram.bins[std::bit_cast<uint32_t>(magnitude) >> 23];
    histogram.largest = std::max(histogram.largest, magnitude);
    histogram.smallest =
        histogram.smallest == 0 ? magnitude : std::min(histogram.smallest, magnitude);
    for (size_t f = 0; f < kNarrowFormats.size(); ++f) {
      const Format format = kNarrowFormats.at(f);
      NarrowCounts& counts = histogram.narrow.at(f);
      switch (classify(format, encode(format, value))) {
        case NumberClass::zero:
          ++counts.zero;
          break;
        case NumberClass::subnormal:
          ++counts.subnormal;
          break;
        case NumberClass::infinity:
        case NumberClass::nan:
          ++counts.overflow;
          break;
        case NumberClass::normal:
          break;
      }
    }
  }
}

}  // namespace

const NarrowCounts& ExponentHistogram::in(Format format) const {
  const auto found = std::find(kNarrowFormats.begin(), kNarrowFormats.end(), format);
  MANTISSA_CHECK(found != kNarrowFormats.end(), InvalidArgument, "exponent_histogram: format ",
                 to_string(format), " is not counted; ask for bf16, fp16, fp8_e4m3 or fp8_e5m2");
  return narrow.at(static_cast<size_t>(found - kNarrowFormats.begin()));
}

void ExponentHistogram::merge(const ExponentHistogram& other) {
  count += other.count;
  zeros += other.zeros;
  nan += other.nan;
  positive_infinity += other.positive_infinity;
  negative_infinity += other.negative_infinity;
  largest = std::max(largest, other.largest);
  if (smallest == 0 || (other.smallest != 0 && other.smallest < smallest)) {
    smallest = other.smallest;
  }
  for (size_t bin = 0; bin < bins.size(); ++bin) {
    bins[bin] += other.bins[bin];
  }
  for (size_t f = 0; f < narrow.size(); ++f) {
    narrow[f].zero += other.narrow[f].zero;
    narrow[f].subnormal += other.narrow[f].subnormal;
    narrow[f].overflow += other.narrow[f].overflow;
  }
}

ExponentHistogram exponent_histogram(std::span<const float> values) {
  return histogram_of(Format::fp32, values);
}

ExponentHistogram exponent_histogram(Format format, std::span<const uint16_t> patterns) {
  MANTISSA_CHECK(format == Format::bf16 || format == Format::fp16, InvalidArgument,
                 "exponent_histogram: format ", to_string(format),
                 " is not stored in 16 bits; use bf16 or fp16");
  return histogram_of(format, patterns);
}

ExponentHistogram exponent_histogram_reference(std::span<const float> values) {
  ExponentHistogram histogram;
  for (const float value : values) {
    count_number(value, histogram);
  }
  return histogram;
}

double headroom_bits(const ExponentHistogram& histogram, Format format) {
  return histogram.largest == 0
             ? std::numeric_limits<double>::infinity()
             : std::log2(info(format).max / static_cast<double>(histogram.largest));
}

int64_t num_near_overflow(const ExponentHistogram& histogram, Format format, int bits) {
  MANTISSA_CHECK(bits >= 1, InvalidArgument, "num_near_overflow: bits is ", bits,
                 "; use 1 or more");
  const int exponent = std::ilogb(info(format).max) + 1 - bits;
  int64_t count = 0;
  for (size_t bin = 1; bin < histogram.bins.size(); ++bin) {
    count += exponent_of_bin(bin) >= exponent ? histogram.bins[bin] : 0;
  }
  return count;
}

}  // namespace mantissa::numerics
