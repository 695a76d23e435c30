#include "mantissa/numerics/exact.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <system_error>

#include "mantissa/base/error.h"

namespace mantissa::numerics {
namespace {

constexpr uint64_t kLeadingBit = uint64_t{1} << 63;

// Numbers that not even a double can hold round like these in every format.
constexpr Exact kHuge = {.exponent = 2000, .significand = kLeadingBit | 1};
constexpr Exact kTiny = {.exponent = -2000, .significand = kLeadingBit | 1};

// By the bits: an instruction would read a subnormal as zero in the processor's
// denormals-are-zero mode, which training sets.
Exact from_fields(bool negative, uint64_t exponent_field, uint64_t fraction, int fraction_bits,
                  int bias) {
  const int top_field = 2 * bias + 1;
  if (static_cast<int>(exponent_field) == top_field) {
    const auto kind = fraction == 0 ? Exact::Kind::infinity : Exact::Kind::nan;
    return {.kind = kind, .negative = negative};
  }
  const uint64_t hidden = exponent_field == 0 ? 0 : uint64_t{1} << fraction_bits;
  const uint64_t significand = fraction | hidden;
  if (significand == 0) {
    return {.negative = negative};
  }
  const int shift = std::countl_zero(significand);
  const int field = std::max(static_cast<int>(exponent_field), 1);
  return {.negative = negative,
          .exponent = field - bias - fraction_bits + 63 - shift,
          .significand = significand << shift};
}

// A positive number 0.d1d2d3... * 10^point, d1 and the last digit not zero; zero has no digits.
struct Decimal {
  std::string digits;
  int64_t point = 0;

  void normalize() {
    digits.erase(digits.find_last_not_of('0') + 1);
    const size_t zeros = std::min(digits.find_first_not_of('0'), digits.size());
    digits.erase(0, zeros);
    point -= static_cast<int64_t>(zeros);
  }
};

// What is left of the text that is being read.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  bool done() const { return rest_.empty(); }

  bool take(char lower) {
    if (done() || to_lower(rest_.front()) != lower) {
      return false;
    }
    rest_.remove_prefix(1);
    return true;
  }

  bool take_word(std::string_view lower) {
    const bool same =
        rest_.size() == lower.size() &&
        std::equal(lower.begin(), lower.end(), rest_.begin(),
                   [](char expected, char found) { return expected == to_lower(found); });
    if (same) {
      rest_ = {};
    }
    return same;
  }

  // The next digit in `base`, or -1.
  int take_digit(int base) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const size_t value = done() ? kDigits.npos : kDigits.find(to_lower(rest_.front()));
    if (value >= static_cast<size_t>(base)) {
      return -1;
    }
    rest_.remove_prefix(1);
    return static_cast<int>(value);
  }

  // `[+-]digits` to the end of the text, clamped to +-10^9; false when it is something else.
  bool take_exponent(int64_t& exponent) {
    const bool negative = take('-');
    if (!negative) {
      take('+');
    }
    if (done()) {
      return false;
    }
    constexpr int64_t kLimit = 1'000'000'000;
    int64_t value = 0;
    for (int digit = take_digit(10); digit >= 0; digit = take_digit(10)) {
      value = std::min(value * 10 + digit, kLimit);
    }
    exponent = negative ? -value : value;
    return done();
  }

 private:
  static char to_lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }

  std::string_view rest_;
};

// The digits of `value`, positive: a double has at most 767 of them.
Decimal all_digits(double value) {
  std::array<char, 800> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::scientific, 766);
  const std::string_view all(text.data(), static_cast<size_t>(end.ptr - text.data()));
  const size_t exponent = all.find('e');
  Decimal decimal{.digits = std::string(all.substr(0, 1)).append(all.substr(2, exponent - 2))};
  Reader(all.substr(exponent + 1)).take_exponent(decimal.point);
  decimal.point += 1;
  decimal.normalize();
  return decimal;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.point != b.point) {
    return a.point < b.point ? -1 : 1;
  }
  return a.digits.compare(b.digits);
}

Exact from_decimal(const Decimal& decimal) {
  if (decimal.digits.empty()) {
    return {};
  }
  const std::string text =
      decimal.digits + 'e' +
      std::to_string(decimal.point - static_cast<int64_t>(decimal.digits.size()));
  double nearest = 0.0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), nearest);
  if (parsed.ec == std::errc::result_out_of_range) {
    return decimal.point > 0 ? kHuge : kTiny;
  }
  // The double is not enough: 1.00390625000000000001 is a little over the middle between two bf16
  // numbers, but its nearest double is that middle. So: cut to a double instead of rounding, and
  // let bits below say that digits follow, and whether they reach the middle to the next double.
  const int order = compare(decimal, all_digits(nearest));
  if (order == 0) {
    return exact(nearest);
  }
  const double cut = order > 0 ? nearest : std::nextafter(nearest, 0.0);
  if (cut == 0.0) {
    return {.exponent = -1075, .significand = kLeadingBit | 1};
  }
  Exact result = exact(cut);
  const int middle = 10 + std::max(-1022 - result.exponent, 0);
  result.significand |= order > 0 ? 1 : uint64_t{1} << middle | 1;
  return result;
}

// False when no digit was read.
bool read_decimal(Reader& reader, Exact& result) {
  Decimal decimal;
  bool after_point = false;
  bool any = false;
  while (true) {
    const int digit = reader.take_digit(10);
    if (digit >= 0) {
      any = true;
      decimal.digits.push_back(static_cast<char>('0' + digit));
      decimal.point += after_point ? 0 : 1;
    } else if (after_point || !reader.take('.')) {
      break;
    } else {
      after_point = true;
    }
  }
  int64_t exponent = 0;
  if (!any || (reader.take('e') && !reader.take_exponent(exponent))) {
    return false;
  }
  decimal.point += exponent;
  decimal.normalize();
  result = from_decimal(decimal);
  return true;
}

bool read_hexadecimal(Reader& reader, Exact& result) {
  uint64_t significand = 0;
  int64_t exponent = 0;  // of the lowest bit of `significand`
  bool lost = false;
  bool after_point = false;
  bool any = false;
  while (true) {
    const int digit = reader.take_digit(16);
    if (digit >= 0) {
      any = true;
      const bool fits = significand >> 60 == 0;
      significand = fits ? significand << 4 | static_cast<uint64_t>(digit) : significand;
      lost = lost || (!fits && digit != 0);
      exponent += (fits ? 0 : 4) - (after_point ? 4 : 0);
    } else if (after_point || !reader.take('.')) {
      break;
    } else {
      after_point = true;
    }
  }
  int64_t power = 0;
  if (!any || (reader.take('p') && !reader.take_exponent(power))) {
    return false;
  }
  result = {};
  if (significand != 0) {
    const int shift = std::countl_zero(significand);
    exponent += power + 63 - shift;
    result.exponent =
        static_cast<int>(std::clamp<int64_t>(exponent, kTiny.exponent, kHuge.exponent));
    result.significand = significand << shift | (lost ? 1 : 0);
  }
  return true;
}

}  // namespace

Exact exact(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return from_fields(bits >> 31 != 0, bits >> 23 & 0xFF, bits & 0x7FFFFF, 23, 127);
}

Exact exact(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  return from_fields(bits >> 63 != 0, bits >> 52 & 0x7FF, bits & 0xFFFFFFFFFFFFF, 52, 1023);
}

Exact parse_exact(std::string_view text) {
  Reader reader(text);
  const bool negative = reader.take('-');
  if (!negative) {
    reader.take('+');
  }
  Exact result;
  bool valid = true;
  if (reader.take_word("inf") || reader.take_word("infinity")) {
    result.kind = Exact::Kind::infinity;
  } else if (reader.take_word("nan")) {
    result.kind = Exact::Kind::nan;
  } else {
    const size_t start = text.find_first_of("0123456789.");
    const bool hexadecimal = start <= 1 && text.size() > start + 1 && text[start] == '0' &&
                             (text[start + 1] == 'x' || text[start + 1] == 'X');
    if (hexadecimal) {
      reader = Reader(text.substr(start + 2));
    }
    valid = hexadecimal ? read_hexadecimal(reader, result) : read_decimal(reader, result);
  }
  MANTISSA_CHECK(valid && reader.done(), InvalidArgument, "number: cannot read \"", text,
                 "\"; write a decimal (-1.5e-3), a hexadecimal number (0x1.8p-3), inf or nan");
  result.negative = negative;
  return result;
}

double to_double(const Exact& value) {
  double magnitude = std::numeric_limits<double>::infinity();
  if (value.kind == Exact::Kind::nan) {
    magnitude = std::numeric_limits<double>::quiet_NaN();
  } else if (value.kind == Exact::Kind::finite) {
    // long double holds 64 bits and the exponents of `Exact`, so that only the cast rounds.
    static_assert(std::numeric_limits<long double>::digits >= 64);
    magnitude = static_cast<double>(
        std::ldexp(static_cast<long double>(value.significand), value.exponent - 63));
  }
  return value.negative ? -magnitude : magnitude;
}

}  // namespace mantissa::numerics
