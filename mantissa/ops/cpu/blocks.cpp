#include "mantissa/ops/cpu/blocks.h"

#include <algorithm>
#include <span>

#include "mantissa/numerics/convert.h"

namespace mantissa::ops::cpu {
namespace {

using numerics::Format;

Format format_of(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::BFloat16 ? Format::bf16 : Format::fp16;
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
  const auto size = static_cast<size_t>(count);
  numerics::decode(format_of(dtype), std::span(static_cast<const uint16_t*>(data) + begin, size),
                   std::span(buffer, size));
  return buffer;
}

void narrow(const float* source, void* data, c10::ScalarType dtype, int64_t begin, int64_t count) {
  if (dtype == c10::ScalarType::Float) {
    std::copy_n(source, count, static_cast<float*>(data) + begin);
    return;
  }
  const auto size = static_cast<size_t>(count);
  numerics::encode(format_of(dtype), std::span(source, size),
                   std::span(static_cast<uint16_t*>(data) + begin, size));
}

}  // namespace mantissa::ops::cpu
