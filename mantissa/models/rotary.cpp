#include "mantissa/models/rotary.h"

#include <cmath>
#include <tuple>
#include <vector>

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include "mantissa/base/error.h"

namespace mantissa::models {
namespace {

struct CachedTables {
  std::tuple<int64_t, int64_t, double, at::ScalarType> key;
  std::pair<at::Tensor, at::Tensor> tables;
};

constexpr size_t kCachedTables = 4;

std::pair<at::Tensor, at::Tensor> compute_tables(int64_t length, int64_t head_width, double base,
                                                 at::ScalarType dtype) {
  const at::Tensor cosines = at::empty({length, head_width}, at::kDouble);
  const at::Tensor sines = at::empty({length, head_width}, at::kDouble);
  auto* cosine = cosines.mutable_data_ptr<double>();
  auto* sine = sines.mutable_data_ptr<double>();
  const int64_t half = head_width / 2;
  for (int64_t t = 0; t < length; ++t) {
    for (int64_t c = 0; c < head_width; ++c) {
      const double frequency = std::pow(base, -2.0 * static_cast<double>(c % half) / head_width);
      const double angle = static_cast<double>(t) * frequency;
      cosine[t * head_width + c] = std::cos(angle);
      sine[t * head_width + c] = std::sin(angle);
    }
  }
  // Through FP32, so that a 16-bit table is the rounding of the FP32 one.
  return {cosines.to(at::kFloat).to(dtype), sines.to(at::kFloat).to(dtype)};
}

}  // namespace

std::pair<at::Tensor, at::Tensor> rotary_tables(int64_t length, int64_t head_width, double base,
                                                at::ScalarType dtype) {
  MANTISSA_CHECK(head_width > 0 && head_width % 2 == 0, InvalidArgument, "rotary: head width ",
                 head_width, "; it must be even and positive");
  thread_local std::vector<CachedTables> cache;
  const auto key = std::make_tuple(length, head_width, base, dtype);
  for (const CachedTables& entry : cache) {
    if (entry.key == key) {
      return entry.tables;
    }
  }
  const at::NoGradGuard no_grad;
  if (cache.size() == kCachedTables) {
    cache.erase(cache.begin());
  }
  cache.push_back({key, compute_tables(length, head_width, base, dtype)});
  return cache.back().tables;
}

at::Tensor rotate(const at::Tensor& x, double base) {
  const int64_t width = x.size(-1);
  const auto [cosines, sines] = rotary_tables(x.size(-2), width, base, x.scalar_type());
  const at::Tensor low = x.narrow(-1, 0, width / 2);
  const at::Tensor high = x.narrow(-1, width / 2, width / 2);
  return x.mul(cosines).add(at::cat({high.neg(), low}, -1).mul(sines));
}

}  // namespace mantissa::models
