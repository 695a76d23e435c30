#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "mantissa/base/api.h"

namespace mantissa {

/// XXH3, 64 bits, seed 0 (github.com/Cyan4973/xxHash), over bytes that come in pieces.
class MANTISSA_API Xxh3 {
 public:
  Xxh3();
  ~Xxh3();

  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;

  void update(const void* data, size_t size);

  /// Of all bytes so far; more may follow.
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

MANTISSA_API uint64_t xxh3(std::string_view bytes);

/// Sixteen lower-case digits, most significant first: how files and messages name an xxh3.
MANTISSA_API std::string hex(uint64_t value);

/// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4.
MANTISSA_API uint32_t crc32c(std::string_view bytes);

}  // namespace mantissa
