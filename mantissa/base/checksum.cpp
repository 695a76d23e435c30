#include "mantissa/base/checksum.h"

#include <array>
#include <cstdio>
#include <new>

#include <xxhash.h>

namespace mantissa {
namespace {

constexpr std::array<uint32_t, 256> make_crc32c_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);  // the polynomial, bits reversed
    }
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrc32cTable = make_crc32c_table();

}  // namespace

struct Xxh3::State {
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash{XXH3_createState(),
                                                                       XXH3_freeState};
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {
  if (state_->hash == nullptr) {
    throw std::bad_alloc();
  }
  XXH3_64bits_reset(state_->hash.get());
}

Xxh3::~Xxh3() = default;

void Xxh3::update(const void* data, size_t size) {
  if (size > 0) {
    XXH3_64bits_update(state_->hash.get(), data, size);
  }
}

uint64_t Xxh3::value() const { return XXH3_64bits_digest(state_->hash.get()); }

uint64_t xxh3(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string hex(uint64_t value) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(value));
  return digits.data();
}

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ kCrc32cTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  }
  return ~crc;
}

}  // namespace mantissa
