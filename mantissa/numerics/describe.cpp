#include "mantissa/numerics/describe.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/nonfinite.h"
#include "mantissa/numerics/exact.h"
#include "mantissa/numerics/rounding.h"
#include "mantissa/numerics/ulp.h"

namespace mantissa::numerics {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kPatternPrefix = "bits:";

// `digits`: in the notation of printf's %g.
std::string significant(double value, int digits) {
  std::array<char, 800> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::general, digits);
  return {text.data(), end.ptr};
}

std::string hexadecimal(Format format, uint32_t pattern) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = info(format).storage_bits - 4; shift >= 0; shift -= 4) {
    text.push_back(kDigits[pattern >> shift & 0xF]);
  }
  return text;
}

std::string binary(uint32_t field, int width) {
  std::string text;
  for (int bit = width - 1; bit >= 0; --bit) {
    text.push_back((field >> bit & 1) != 0 ? '1' : '0');
  }
  return text;
}

// sign|exponent|fraction
std::string grouped_bits(const Description& d) {
  const FormatInfo& f = info(d.format);
  return binary(d.sign_field, 1) + '|' + binary(d.exponent_field, f.exponent_bits) + '|' +
         binary(d.fraction_field, f.fraction_bits);
}

uint32_t parse_pattern(Format format, std::string_view text) {
  const std::string_view digits = text.substr(kPatternPrefix.size());
  const std::string_view prefix = digits.substr(0, 2);
  const int base = prefix == "0x" ? 16 : prefix == "0b" ? 2 : 0;
  uint32_t pattern = 0;
  bool valid = base != 0;
  if (valid) {
    const char* end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data() + 2, end, pattern, base);
    valid = parsed.ec == std::errc() && parsed.ptr == end;
  }
  MANTISSA_CHECK(valid, InvalidArgument, "number: cannot read \"", text,
                 "\"; write bits:0x and hexadecimal or bits:0b and binary digits, at most ",
                 info(format).storage_bits, " bits");
  return pattern;
}

// All but the input and its errors.
Description describe_pattern(Format format, uint32_t pattern) {
  const FormatInfo& f = info(format);
  const uint32_t m = magnitude(format, pattern);
  Description d;
  d.format = format;
  d.pattern = pattern;
  d.nearest = decode(format, pattern);
  d.number_class = classify(format, pattern);
  d.sign_field = (pattern & sign_mask(format)) != 0 ? 1 : 0;
  d.exponent_field = m >> f.fraction_bits;
  d.fraction_field = m & ((1U << f.fraction_bits) - 1);
  d.below_pattern = next_down(format, pattern);
  d.above_pattern = next_up(format, pattern);
  d.below = decode(format, d.below_pattern);
  d.above = decode(format, d.above_pattern);
  return d;
}

Description describe_exact(Format format, const Exact& exact_value, std::string_view input) {
  Description d = describe_pattern(format, encode(format, exact_value));
  d.input = input;
  d.value = to_double(exact_value);
  d.ulp = exact_value.kind == Exact::Kind::finite ? ulp(format, d.value) : kNan;
  d.is_overflow = exact_value.kind == Exact::Kind::finite && !std::isfinite(d.nearest);
  // Not even a double has the error of a number such as 1e-400.
  d.is_underflow = exact_value.significand != 0 && d.value == 0;
  const bool finite = std::isfinite(d.value) && std::isfinite(d.nearest) && !d.is_underflow;
  d.error = finite ? d.nearest - d.value : kNan;
  d.relative_error = d.value == 0 ? kNan : std::abs(d.error / d.value);
  d.error_in_ulps = std::abs(d.error) / d.ulp;
  return d;
}

// How the fields make the number: `1.6015625 x 2^-4 = 205 x 2^-11`.
std::string as_product(const Description& d) {
  const FormatInfo& f = info(d.format);
  const bool normal = d.number_class == NumberClass::normal;
  const int exponent = (normal ? static_cast<int>(d.exponent_field) : 1) - f.bias;
  const uint32_t integer = d.fraction_field + (normal ? 1U << f.fraction_bits : 0);
  const double scaled = std::ldexp(static_cast<double>(integer), -f.fraction_bits);
  const int zeros = std::countr_zero(integer);
  const std::string_view sign = d.sign_field != 0 ? "-" : "";
  return concat(sign, exact_decimal(scaled), " x 2^", exponent, " = ", sign, integer >> zeros,
                " x 2^", exponent - f.fraction_bits + zeros);
}

std::string exponent_text(const Description& d) {
  const FormatInfo& f = info(d.format);
  switch (d.number_class) {
    case NumberClass::normal:
      return concat(d.exponent_field, " - bias ", f.bias, " = ",
                    static_cast<int>(d.exponent_field) - f.bias);
    case NumberClass::zero:
    case NumberClass::subnormal:
      return concat("0 stands for 1 - bias ", f.bias, " = ", 1 - f.bias, " without a leading 1 (",
                    to_string(d.number_class), ")");
    case NumberClass::infinity:
    case NumberClass::nan:
      break;
  }
  return concat(d.exponent_field, " (", to_string(d.number_class), ")");
}

std::string error_text(const Description& d) {
  if (d.is_overflow) {
    return concat("overflow: the largest finite number is ", exact_decimal(info(d.format).max));
  }
  if (d.is_underflow) {
    return "underflow: the number is smaller than any that a double can hold";
  }
  if (std::isnan(d.error)) {
    return "none";
  }
  if (d.error == 0) {
    return "0 (exact)";
  }
  std::string text = concat(d.error > 0 ? "+" : "", significant(d.error, 6), " = ",
                            significant(d.error_in_ulps, 4), " ulp");
  if (!std::isnan(d.relative_error)) {
    text += concat(", relative ", significant(d.relative_error, 4));
  }
  return text;
}

std::string neighbour_text(Format format, uint32_t pattern) {
  return concat(hexadecimal(format, pattern), "  ", shortest_decimal(format, pattern));
}

nlohmann::ordered_json json_number(double value) {
  const auto name = nonfinite_name(value);
  return name ? nlohmann::ordered_json(*name) : nlohmann::ordered_json(value);
}

}  // namespace

Description describe(Format format, double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return describe_exact(format, exact(value), {text.data(), end.ptr});
}

Description describe(Format format, std::string_view text) {
  if (!text.starts_with(kPatternPrefix)) {
    return describe_exact(format, parse_exact(text), text);
  }
  const uint32_t pattern = parse_pattern(format, text);
  Description d = describe_pattern(format, pattern);
  d.input = text;
  d.value = d.nearest;
  const bool finite = std::isfinite(d.value);
  d.ulp = finite ? ulp(format, d.value) : kNan;
  d.error = finite ? 0.0 : kNan;
  d.relative_error = finite && d.value != 0 ? 0.0 : kNan;
  d.error_in_ulps = d.error;
  return d;
}

std::string shortest_decimal(Format format, uint32_t pattern) {
  const double value = decode(format, pattern);
  if (!std::isfinite(value)) {
    return significant(value, 1);
  }
  // 9 digits tell all fp32 numbers apart (Goldberg 1991).
  for (int digits = 1; digits < 9; ++digits) {
    std::string text = significant(value, digits);
    if (encode(format, parse_exact(text)) == pattern) {
      return text;
    }
  }
  return significant(value, 9);
}

std::string exact_decimal(double value) { return significant(value, 767); }

std::string to_text(const Description& d) {
  const FormatInfo& f = info(d.format);
  std::vector<std::pair<std::string, std::string>> lines;
  lines.emplace_back("input", d.input);
  lines.emplace_back("nearest", shortest_decimal(d.format, d.pattern));
  const bool finite = d.number_class != NumberClass::infinity && d.number_class != NumberClass::nan;
  if (finite && d.number_class != NumberClass::zero) {
    // Longer ones would hide the rest; the product is exact as well.
    constexpr size_t kMaxDigits = 40;
    if (const std::string all = exact_decimal(d.nearest); all.size() <= kMaxDigits) {
      lines.emplace_back("exactly", all);
    }
    lines.emplace_back("product", as_product(d));
  }
  lines.emplace_back("error", error_text(d));
  lines.emplace_back("ulp", std::isfinite(d.ulp)
                                ? concat(significant(d.ulp, 6), " = 2^", std::ilogb(d.ulp))
                                : "none");
  lines.emplace_back("below", neighbour_text(d.format, d.below_pattern));
  lines.emplace_back("above", neighbour_text(d.format, d.above_pattern));
  lines.emplace_back("bits", concat(hexadecimal(d.format, d.pattern), "  ", grouped_bits(d)));
  lines.emplace_back("sign", d.sign_field != 0 ? "1 (negative)" : "0 (positive)");
  lines.emplace_back("exponent", exponent_text(d));
  lines.emplace_back("fraction", concat(d.fraction_field, " / 2^", f.fraction_bits));
  lines.emplace_back("class", to_string(d.number_class));

  std::string text = concat(f.name, ": 1 sign, ", f.exponent_bits, " exponent, ", f.fraction_bits,
                            " fraction bits\n");
  for (const auto& [name, content] : lines) {
    text += concat("  ", name, std::string(10 - name.size(), ' '), content, "\n");
  }
  return text;
}

std::string to_json(const Description& d) {
  nlohmann::ordered_json json;
  json["format"] = to_string(d.format);
  json["input"] = d.input;
  json["value"] = json_number(d.value);
  json["nearest"] = json_number(d.nearest);
  json["decimal"] = shortest_decimal(d.format, d.pattern);
  json["bits"] = hexadecimal(d.format, d.pattern);
  json["sign"] = d.sign_field;
  json["exponent"] = d.exponent_field;
  json["fraction"] = d.fraction_field;
  json["class"] = to_string(d.number_class);
  json["error"] = json_number(d.error);
  json["relative_error"] = json_number(d.relative_error);
  json["error_in_ulps"] = json_number(d.error_in_ulps);
  json["ulp"] = json_number(d.ulp);
  json["below"] = json_number(d.below);
  json["above"] = json_number(d.above);
  json["below_bits"] = hexadecimal(d.format, d.below_pattern);
  json["above_bits"] = hexadecimal(d.format, d.above_pattern);
  return json.dump();
}

}  // namespace mantissa::numerics
