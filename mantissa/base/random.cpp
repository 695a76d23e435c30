#include "mantissa/base/random.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "mantissa/base/error.h"

namespace mantissa {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr uint64_t kNoBlock = std::numeric_limits<uint64_t>::max();

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

Random::Random(uint64_t seed, uint64_t stream, uint64_t position)
    : seed_(seed), stream_(stream), position_(position), cached_block_(kNoBlock), block_{} {}

uint32_t Random::next_u32() {
  const uint64_t index = position_ / 4;
  if (index != cached_block_) {
    block_ = philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                         static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                        {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    cached_block_ = index;
  }
  return block_[position_++ % 4];
}

uint64_t Random::next_u64() {
  const uint64_t low = next_u32();
  return low | uint64_t{next_u32()} << 32;
}

double Random::uniform() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }

double Random::normal() {
  const double radius = std::sqrt(-2.0 * std::log1p(-uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

uint64_t Random::below(uint64_t bound) {
  MANTISSA_ASSERT(bound > 0);
  // Values past the last whole multiple of `bound` would favour small results.
  const uint64_t excess = (std::numeric_limits<uint64_t>::max() % bound + 1) % bound;
  uint64_t value = next_u64();
  while (value > std::numeric_limits<uint64_t>::max() - excess) {
    value = next_u64();
  }
  return value % bound;
}

}  // namespace mantissa
