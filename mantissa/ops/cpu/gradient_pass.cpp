#include <algorithm>
#include <array>

#include <ATen/Parallel.h>

#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/ops/cpu/optimizer_passes.h"

namespace mantissa::ops::cpu {
namespace {

// Independent sums, so that the additions neither wait for one another nor hinder vectorization.
constexpr int64_t kLanes = 8;

double block_sum(const float* gradient, int64_t count, float inverse_scale) {
  std::array<double, kLanes> lanes = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = gradient[i + lane] * inverse_scale;
      lanes[lane] += value * value;
    }
  }
  double total = 0;
  for (double lane : lanes) {
    total += lane;
  }
  for (; i < count; ++i) {
    const double value = gradient[i] * inverse_scale;
    total += value * value;
  }
  return total;
}

}  // namespace

// Reads each gradient once (2 or 4 bytes an element), writes nothing.
double sum_of_unscaled_squares(const std::vector<GradientView>& gradients, float inverse_scale) {
  std::vector<int64_t> sizes;
  sizes.reserve(gradients.size());
  for (const GradientView& gradient : gradients) {
    sizes.push_back(gradient.count);
  }
  const std::vector<Chunk> chunks = chunks_of(sizes);
  std::vector<double> sums(chunks.size(), 0.0);
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 1, [&](int64_t first, int64_t last) {
    std::array<float, kBlockElements> buffer;
    for (int64_t c = first; c < last; ++c) {
      const GradientView& gradient = gradients[chunks[c].tensor];
      for (int64_t i = chunks[c].begin; i < chunks[c].end; i += kBlockElements) {
        const int64_t count = std::min(kBlockElements, chunks[c].end - i);
        const float* block = widen(gradient.data, gradient.dtype, i, count, buffer.data());
        sums[c] += block_sum(block, count, inverse_scale);
      }
    }
  });
  double total = 0;
  for (double sum : sums) {
    total += sum;
  }
  return total;
}

}  // namespace mantissa::ops::cpu
