#pragma once

#include <cstdint>
#include <vector>

#include <c10/core/ScalarType.h>

namespace mantissa::ops::cpu {

/// Passes over many tensors are cut into chunks that do not depend on the number of threads, so
/// that neither do the sums over them; a chunk is read in blocks that stay in the L1 cache.
inline constexpr int64_t kChunkElements = 1 << 15;
inline constexpr int64_t kBlockElements = 1024;

struct Chunk {
  size_t tensor;
  int64_t begin;
  int64_t end;
};

/// The chunks of tensors with `sizes` elements, in order.
std::vector<Chunk> chunks_of(const std::vector<int64_t>& sizes);

/// `count` elements of `data` (FP32, BF16 or FP16) from `begin` on as FP32: `data` itself, or
/// `buffer` filled.
const float* widen(const void* data, c10::ScalarType dtype, int64_t begin, int64_t count,
                   float* buffer);

/// Rounds `source` to nearest even into `count` elements of `data` (FP32, BF16 or FP16).
void narrow(const float* source, void* data, c10::ScalarType dtype, int64_t begin, int64_t count);

}  // namespace mantissa::ops::cpu
