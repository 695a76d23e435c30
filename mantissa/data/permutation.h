#pragma once

#include <cstdint>

#include "mantissa/base/api.h"

namespace mantissa::data {

/// A random order of 0 to size - 1 as a function: no array, so that shuffling the windows of a
/// whole genome takes no memory and any position can be reached at once.
///
/// A Feistel network with Philox as its round function permutes the numbers of 2n bits, the least
/// that hold `size`; numbers which fall outside are sent through it again until they are inside
/// ("cycle walking", Black and Rogaway, CT-RSA 2002).
class MANTISSA_API Permutation {
 public:
  /// `size` >= 1. Orders of another seed or another number are independent.
  Permutation(uint64_t size, uint64_t seed, uint64_t number);

  /// `position` < size.
  uint64_t operator()(uint64_t position) const;

  uint64_t size() const { return size_; }

 private:
  uint64_t encrypt(uint64_t value) const;

  uint64_t size_;
  uint64_t seed_;
  uint64_t stream_;
  unsigned half_bits_;
};

}  // namespace mantissa::data
