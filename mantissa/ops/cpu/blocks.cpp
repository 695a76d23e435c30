#include "mantissa/ops/cpu/blocks.h"

#include <algorithm>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace mantissa::ops::cpu {
namespace {

template <typename From, typename To>
void convert(const From* source, To* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    target[i] = static_cast<To>(source[i]);
  }
}

}  // namespace

std::vector<Chunk> chunks_of(const std::vector<int64_t>& sizes) {
  std::vector<Chunk> chunks;
  for (size_t tensor = 0; tensor < sizes.size(); ++tensor) {
    for (int64_t begin = 0; begin < sizes[tensor]; begin += kChunkElements) {
      chunks.push_back({tensor, begin, std::min(begin + kChunkElements, sizes[tensor])});
    }
  }
  return chunks;
}

const float* widen(const void* data, c10::ScalarType dtype, int64_t begin, int64_t count,
                   float* buffer) {
  if (dtype == c10::ScalarType::Float) {
    return static_cast<const float*>(data) + begin;
  }
  if (dtype == c10::ScalarType::BFloat16) {
    convert(static_cast<const c10::BFloat16*>(data) + begin, buffer, count);
  } else {
    convert(static_cast<const c10::Half*>(data) + begin, buffer, count);
  }
  return buffer;
}

void narrow(const float* source, void* data, c10::ScalarType dtype, int64_t begin, int64_t count) {
  if (dtype == c10::ScalarType::BFloat16) {
    convert(source, static_cast<c10::BFloat16*>(data) + begin, count);
  } else {
    convert(source, static_cast<c10::Half*>(data) + begin, count);
  }
}

}  // namespace mantissa::ops::cpu
