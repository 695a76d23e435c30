#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <ATen/Parallel.h>

#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/ops/cpu/optimizer_passes.h"

namespace mantissa::ops::cpu {

/// The FP32 weights of `count` elements from `begin` on: the master itself, or `buffer` filled.
float* load_weights(const WeightView& weight, int64_t begin, int64_t count, float* buffer);

/// Puts changed ones back: what load_weights() returned, with the same arguments.
void store_weights(const WeightView& weight, int64_t begin, int64_t count, const float* weights);

/// One pass over the weights of all parameters, in parallel: `update(view, weights, gradient,
/// begin, count)` changes the FP32 weights of a block of `view`. A View has a WeightView `weight`.
template <typename View, typename Update>
void update_weights(const std::vector<View>& parameters, const Update& update) {
  std::vector<int64_t> sizes;
  sizes.reserve(parameters.size());
  for (const View& parameter : parameters) {
    sizes.push_back(parameter.weight.gradient.count);
  }
  const std::vector<Chunk> chunks = chunks_of(sizes);
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 1, [&](int64_t first, int64_t last) {
    std::array<float, kBlockElements> gradient_buffer;
    std::array<float, kBlockElements> weight_buffer;
    for (int64_t c = first; c < last; ++c) {
      const View& view = parameters[chunks[c].tensor];
      const WeightView& weight = view.weight;
      for (int64_t i = chunks[c].begin; i < chunks[c].end; i += kBlockElements) {
        const int64_t count = std::min(kBlockElements, chunks[c].end - i);
        const float* gradient =
            widen(weight.gradient.data, weight.gradient.dtype, i, count, gradient_buffer.data());
        float* weights = load_weights(weight, i, count, weight_buffer.data());
        update(view, weights, gradient, i, count);
        store_weights(weight, i, count, weights);
      }
    }
  });
}

}  // namespace mantissa::ops::cpu
