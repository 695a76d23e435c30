#include "mantissa/data/permutation.h"

#include <algorithm>
#include <bit>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"

namespace mantissa::data {
namespace {

// Keeps these draws apart from others of the same seed ("PERM").
constexpr uint64_t kPermutationStream = uint64_t{0x5045524d} << 32;

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t number)
    : size_(size), seed_(seed), stream_(kPermutationStream + number), half_bits_(1) {
  MANTISSA_CHECK(size > 0, InvalidArgument, "permutation: size 0; valid: 1 or more");
  half_bits_ = std::max(1U, (static_cast<unsigned>(std::bit_width(size - 1)) + 1) / 2);
}

uint64_t Permutation::encrypt(uint64_t value) const {
  constexpr uint32_t kRounds = 6;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed =
        philox4x32({static_cast<uint32_t>(right), round, static_cast<uint32_t>(stream_),
                    static_cast<uint32_t>(stream_ >> 32)},
                   {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)})[0];
    const uint64_t next = left ^ (mixed & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

uint64_t Permutation::operator()(uint64_t position) const {
  MANTISSA_ASSERT(position < size_);
  uint64_t value = encrypt(position);
  while (value >= size_) {
    value = encrypt(value);
  }
  return value;
}

}  // namespace mantissa::data
