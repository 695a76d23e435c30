#pragma once

#include <array>
#include <cstdint>

#include "mantissa/base/api.h"

namespace mantissa {

/// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy
/// as 1, 2, 3" (SC 2011): 128 random bits as a pure function of key and counter.
MANTISSA_API std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                                std::array<uint32_t, 2> key);

/// A stream of random numbers whose whole state is three integers, so that a checkpoint can hold
/// it and any position can be reached at once. Streams of one seed are independent.
///
///     Random random(seed, kShuffleStream);
///     uint64_t row = random.below(num_rows);
class MANTISSA_API Random {
 public:
  Random(uint64_t seed, uint64_t stream, uint64_t position = 0);

  uint32_t next_u32();
  uint64_t next_u64();
  double uniform();                // in [0, 1), 53 bits
  double normal();                 // mean 0, deviation 1; Box-Muller, two positions a call
  uint64_t below(uint64_t bound);  // in [0, bound), without bias; bound > 0

  uint64_t seed() const { return seed_; }
  uint64_t stream() const { return stream_; }
  uint64_t position() const { return position_; }  // 32-bit words drawn

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t position_;
  uint64_t cached_block_;
  std::array<uint32_t, 4> block_;
};

}  // namespace mantissa
