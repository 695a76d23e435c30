#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/cpu/update_arrays.h"

namespace mantissa::ops::cpu {

/// The FP32 weights of `count` elements from `begin` on: the master itself, or `buffer` filled.
float* load_weights(const WeightView& weight, int64_t begin, int64_t count, float* buffer);

/// Puts changed ones back: what load_weights() returned, with the same arguments. Not into the
/// model of a master.
void store_weights(const WeightView& weight, int64_t begin, int64_t count, const float* weights);

/// What any update of `count` elements from `begin` on needs, the weights as from load_weights().
void set_arrays(const WeightView& weight, int64_t begin, int64_t count, float* buffer,
                UpdateArrays& arrays);

/// One pass over the weights of all parameters, in parallel: `update(view, begin, end)` changes a
/// piece of `view`. A View has a WeightView `weight`.
template <typename View, typename Update>
void update_pieces(const std::vector<View>& parameters, const Update& update) {
  std::vector<int64_t> sizes;
  sizes.reserve(parameters.size());
  for (const View& parameter : parameters) {
    sizes.push_back(parameter.weight.gradient.count);
  }
  const std::vector<Piece> pieces = pieces_of(sizes);
  for_pieces(pieces, [&](size_t p) {
    update(parameters[pieces[p].tensor], pieces[p].begin, pieces[p].end);
  });
}

}  // namespace mantissa::ops::cpu
