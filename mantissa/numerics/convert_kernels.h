#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"
#include "mantissa/numerics/rounding.h"

namespace mantissa::numerics::kernels {

/// One conversion of `size` floats. `random` has a word for each when rounding is stochastic.
struct Job {
  Format format;
  Rounding rounding;
  Overflow overflow;
  const float* values;
  const uint32_t* random;
  size_t size;
};

/// Random words are written in groups of up to this many.
inline constexpr size_t kMaxRandomGroup = 64;

/// Patterns of 16 or 8 bits, by the format.
void encode(const Job& job, void* patterns);
void round_to(const Job& job, float* rounded);
void decode(Format format, const void* patterns, float* values, size_t size);

/// At least `size` words of the stream from `block` on, four a block; up to kMaxRandomGroup - 1
/// words more.
MANTISSA_API void random_words(uint64_t seed, uint64_t stream, uint64_t block, uint32_t* words,
                               size_t size);

const char* target_name();

}  // namespace mantissa::numerics::kernels
