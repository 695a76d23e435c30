#include "mantissa/ops/cpu/norm_kernel.h"

#include <cmath>

// Vectors of a size that is known when this is compiled: they are held in arrays.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/norm_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kParts = 16;
constexpr hn::CappedTag<float, kParts> kFloats;
constexpr hn::CappedTag<float, 1> kOne;
using Floats = hn::Vec<decltype(kFloats)>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(kFloats));

// body(tag, i) for vectors of a row, then for its last numbers one by one.
template <typename Body>
HWY_INLINE void for_row(int64_t width, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    body(kFloats, i);
  }
  for (; i < width; ++i) {
    body(kOne, i);
  }
}

// Sums over a row: number i belongs to part i % kParts.
class Sum {
 public:
  HWY_INLINE Sum() {
    for (Floats& part : parts_) {
      part = hn::Zero(kFloats);
    }
  }
  HWY_INLINE void add(int64_t vector, Floats terms) {
    parts_[vector] = hn::Add(parts_[vector], terms);
  }
  HWY_INLINE void finish_vectors() {
    for (int64_t j = 0; j < kParts / kLanes; ++j) {
      hn::StoreU(parts_[j], kFloats, numbers_ + j * kLanes);
    }
  }
  HWY_INLINE void add_one(int64_t part, float term) { numbers_[part] += term; }
  HWY_INLINE float total() {
    for (int64_t half = kParts / 2; half > 0; half /= 2) {
      for (int64_t j = 0; j < half; ++j) {
        numbers_[j] += numbers_[j + half];
      }
    }
    return numbers_[0];
  }

 private:
  Floats parts_[kParts / kLanes];
  float numbers_[kParts];
};

// term(tag, i) of each vector and number of a row.
template <typename Term>
HWY_INLINE float sum_row(int64_t width, const Term& term) {
  Sum sum;
  int64_t i = 0;
  for (; i + kParts <= width; i += kParts) {
    for (int64_t j = 0; j < kParts / kLanes; ++j) {
      sum.add(j, term(kFloats, i + j * kLanes));
    }
  }
  sum.finish_vectors();
  for (; i < width; ++i) {
    sum.add_one(i % kParts, hn::GetLane(term(kOne, i)));
  }
  return sum.total();
}

float rstd_of(float sum_of_squares, int64_t width, float eps) {
  return static_cast<float>(
      1 / std::sqrt(static_cast<double>(sum_of_squares) / static_cast<double>(width) + eps));
}

template <NormKind kKind>
void norm_row(const NormRows& in, int64_t row) {
  const int64_t first = row * in.width;
  const float* x = in.x + first;
  float mean = 0;
  if constexpr (kKind == NormKind::layer) {
    mean = sum_row(in.width, [&](auto d, int64_t i) HWY_ATTR { return hn::LoadU(d, x + i); }) /
           static_cast<float>(in.width);
    in.mean[row] = mean;
  }
  const float squares = sum_row(in.width, [&](auto d, int64_t i) HWY_ATTR {
    const auto centred = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
    return hn::Mul(centred, centred);
  });
  const float rstd = rstd_of(squares, in.width, in.eps);
  in.rstd[row] = rstd;
  float* out = in.out + first;
  for_row(in.width, [&](auto d, int64_t i) HWY_ATTR {
    const auto unit = hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), hn::Set(d, rstd));
    const auto weight = hn::LoadU(d, in.weight + i);
    hn::StoreU(in.bias == nullptr ? hn::Mul(unit, weight)
                                  : hn::MulAdd(unit, weight, hn::LoadU(d, in.bias + i)),
               d, out + i);
  });
}

// With unit = (x - mean) rstd and h = weight grad_out:
//     grad_x = rstd (h - mean of h - unit * mean of h unit); rms without the mean of h.
template <NormKind kKind>
void norm_gradient_row(const NormGradientRows& in, int64_t row) {
  const int64_t first = row * in.width;
  const float* x = in.x + first;
  const float* grad_out = in.grad_out + first;
  const float mean = kKind == NormKind::layer ? in.mean[row] : 0;
  const float rstd = in.rstd[row];
  const auto width = static_cast<float>(in.width);
  const auto unit = [&](auto d, int64_t i) HWY_ATTR {
    return hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), hn::Set(d, rstd));
  };
  const auto weighted = [&](auto d, int64_t i) HWY_ATTR {
    return hn::Mul(hn::LoadU(d, grad_out + i), hn::LoadU(d, in.weight + i));
  };
  const float mean_of_product =
      sum_row(in.width,
              [&](auto d, int64_t i) HWY_ATTR { return hn::Mul(weighted(d, i), unit(d, i)); }) /
      width;
  float mean_of_weighted = 0;
  if constexpr (kKind == NormKind::layer) {
    mean_of_weighted = sum_row(in.width, weighted) / width;
  }
  float* grad_x = in.grad_x + first;
  for_row(in.width, [&](auto d, int64_t i) HWY_ATTR {
    const auto u = unit(d, i);
    const auto centred = hn::Sub(weighted(d, i), hn::Set(d, mean_of_weighted));
    const auto gradient =
        hn::Mul(hn::Set(d, rstd), hn::NegMulAdd(u, hn::Set(d, mean_of_product), centred));
    hn::StoreU(in.grad_more == nullptr ? gradient
                                       : hn::Add(gradient, hn::LoadU(d, in.grad_more + first + i)),
               d, grad_x + i);
    if (in.grad_weight != nullptr) {
      const auto g = hn::LoadU(d, grad_out + i);
      hn::StoreU(hn::MulAdd(g, u, hn::LoadU(d, in.grad_weight + i)), d, in.grad_weight + i);
      hn::StoreU(hn::Add(g, hn::LoadU(d, in.grad_bias + i)), d, in.grad_bias + i);
    }
  });
}

void add(const float* a, const float* b, int64_t count, float* sum) {
  for_row(count, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, sum + i);
  });
}

void norm_rows(const NormRows& in) {
  for (int64_t row = 0; row < in.rows; ++row) {
    in.kind == NormKind::layer ? norm_row<NormKind::layer>(in, row)
                               : norm_row<NormKind::rms>(in, row);
  }
}

void norm_gradient_rows(const NormGradientRows& in) {
  for (int64_t row = 0; row < in.rows; ++row) {
    in.kind == NormKind::layer ? norm_gradient_row<NormKind::layer>(in, row)
                               : norm_gradient_row<NormKind::rms>(in, row);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops::cpu {

HWY_EXPORT(add);
HWY_EXPORT(norm_rows);
HWY_EXPORT(norm_gradient_rows);

void add(const float* a, const float* b, int64_t count, float* sum) {
  HWY_DYNAMIC_DISPATCH(add)(a, b, count, sum);
}

void norm_rows(const NormRows& in) { HWY_DYNAMIC_DISPATCH(norm_rows)(in); }

void norm_gradient_rows(const NormGradientRows& in) {
  HWY_DYNAMIC_DISPATCH(norm_gradient_rows)(in);
}

}  // namespace mantissa::ops::cpu
#endif
