#include "mantissa/ops/cpu/cross_entropy_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

// Vectors of a size that is known when this is compiled: they are held in arrays.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/cross_entropy_rows.cpp"
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

// Sums are of 16 streams, number i in stream i mod 16, whatever the width of a vector.
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(kFloats));
constexpr int64_t kStreams = 16;
constexpr int64_t kVectors = kStreams / kLanes;
static_assert(kVectors * kLanes == kStreams);
constexpr int64_t kBlock = 1024;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Streams {
  Floats vectors[kVectors];

  static HWY_INLINE Streams of(float value) {
    Streams result;
    for (Floats& vector : result.vectors) {
      vector = hn::Set(kFloats, value);
    }
    return result;
  }

  static HWY_INLINE Streams load(const float* from) {
    Streams result;
    for (int64_t j = 0; j < kVectors; ++j) {
      result.vectors[j] = hn::LoadU(kFloats, from + j * kLanes);
    }
    return result;
  }

  HWY_INLINE void store(float* to) const {
    for (int64_t j = 0; j < kVectors; ++j) {
      hn::StoreU(vectors[j], kFloats, to + j * kLanes);
    }
  }
};

// body(streams) returns what is stored in their place; `padding` stands where the row ends.
template <bool kStore, typename Body>
HWY_INLINE void for_streams(float* row, int64_t count, float padding, const Body& body) {
  int64_t i = 0;
  for (; i + kStreams <= count; i += kStreams) {
    const Streams result = body(Streams::load(row + i));
    if (kStore) {
      result.store(row + i);
    }
  }
  if (i < count) {
    std::array<float, kStreams> last;
    last.fill(padding);
    std::copy(row + i, row + count, last.begin());
    body(Streams::load(last.data())).store(last.data());
    if (kStore) {
      std::copy_n(last.begin(), count - i, row + i);
    }
  }
}

// NaN or one of the others where one is NaN.
float largest_of(float* row, int64_t count) {
  Streams most = Streams::of(-kInfinity);
  for_streams<false>(row, count, -kInfinity, [&](const Streams& x) HWY_ATTR {
    for (int64_t j = 0; j < kVectors; ++j) {
      most.vectors[j] = hn::Max(most.vectors[j], x.vectors[j]);
    }
    return x;
  });
  std::array<float, kStreams> all;
  most.store(all.data());
  return *std::max_element(all.begin(), all.end());
}

double total_of(const Streams& streams) {
  std::array<float, kStreams> all;
  streams.store(all.data());
  double total = 0;
  for (const float one : all) {
    total += one;
  }
  return total;
}

HWY_INLINE void add(Streams& sums, const Streams& x) {
  for (int64_t j = 0; j < kVectors; ++j) {
    sums.vectors[j] = hn::Add(sums.vectors[j], x.vectors[j]);
  }
}

double sum_of(float* row, int64_t count) {
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    Streams sums = Streams::of(0);
    for_streams<false>(row + begin, std::min(kBlock, count - begin), 0,
                       [&](const Streams& x) HWY_ATTR {
                         add(sums, x);
                         return x;
                       });
    total += total_of(sums);
  }
  return total;
}

// The sum of e^(x - most), which with kStore take the place of x.
template <bool kStore>
double sum_of_exponentials(float* row, int64_t count, float most) {
  const Floats shift = hn::Set(kFloats, most);
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    Streams sums = Streams::of(0);
    for_streams<kStore>(row + begin, std::min(kBlock, count - begin), -kInfinity,
                        [&](const Streams& x) HWY_ATTR {
                          Streams powers;
                          for (int64_t j = 0; j < kVectors; ++j) {
                            powers.vectors[j] = exp_lanes(hn::Sub(x.vectors[j], shift));
                          }
                          add(sums, powers);
                          return powers;
                        });
    total += total_of(sums);
  }
  return total;
}

// x becomes factor x - share.
void scale_and_subtract(float* row, int64_t count, float factor, float share) {
  const Floats factors = hn::Set(kFloats, factor);
  const Floats shares = hn::Set(kFloats, share);
  for_streams<true>(row, count, 0, [&](const Streams& x) HWY_ATTR {
    Streams result;
    for (int64_t j = 0; j < kVectors; ++j) {
      result.vectors[j] = hn::MulSub(factors, x.vectors[j], shares);
    }
    return result;
  });
}

template <bool kGradient>
void each_row(const CrossEntropyRows& rows, float scale, double* losses) {
  const int64_t classes = rows.classes;
  const auto num_classes = static_cast<double>(classes);
  const double of_target = 1 - rows.smoothing;
  for (int64_t i = 0; i < rows.rows; ++i) {
    float* row = rows.logits + i * classes;
    const int64_t target = rows.targets[i];
    if (target == rows.ignore_index) {
      losses[i] = 0;
      if (kGradient) {
        std::fill_n(row, classes, 0.0F);
      }
      continue;
    }
    const float most = largest_of(row, classes);
    const double at_target = row[target];
    const double mean = rows.smoothing == 0 ? 0 : sum_of(row, classes) / num_classes;
    const double sum = sum_of_exponentials<kGradient>(row, classes, most);
    const double log_of_sum = most + std::log(sum);
    losses[i] = of_target * (log_of_sum - at_target);
    if (rows.smoothing != 0) {
      losses[i] += rows.smoothing * (log_of_sum - mean);
    }
    if (kGradient) {
      scale_and_subtract(row, classes, static_cast<float>(scale / sum),
                         static_cast<float>(scale * rows.smoothing / num_classes));
      row[target] -= static_cast<float>(scale * of_target);
    }
  }
}

void rows_alone(const CrossEntropyRows& rows, double* losses) { each_row<false>(rows, 0, losses); }

void rows_with_gradient(const CrossEntropyRows& rows, float scale, double* losses) {
  each_row<true>(rows, scale, losses);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops::cpu {

HWY_EXPORT(rows_alone);
HWY_EXPORT(rows_with_gradient);

void cross_entropy_rows(const CrossEntropyRows& rows, double* losses) {
  HWY_DYNAMIC_DISPATCH(rows_alone)(rows, losses);
}

void cross_entropy_rows_with_gradient(const CrossEntropyRows& rows, float scale, double* losses) {
  HWY_DYNAMIC_DISPATCH(rows_with_gradient)(rows, scale, losses);
}

void add_column_sums(const float* matrix, int64_t rows, int64_t cols, float* sums) {
  constexpr int64_t kTogether = 512;
  for (int64_t begin = 0; begin < cols; begin += kTogether) {
    const int64_t count = std::min(kTogether, cols - begin);
    std::array<float, kTogether> partial = {};
    for (int64_t i = 0; i < rows; ++i) {
      const float* row = matrix + i * cols + begin;
      for (int64_t j = 0; j < count; ++j) {
        partial[static_cast<size_t>(j)] += row[j];
      }
    }
    for (int64_t j = 0; j < count; ++j) {
      sums[begin + j] += partial[static_cast<size_t>(j)];
    }
  }
}

}  // namespace mantissa::ops::cpu
#endif
