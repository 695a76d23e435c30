#include "mantissa/report/quantity.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace mantissa::report {
namespace {

std::string formatted(const char* format, double value) {
  std::array<char, 64> buffer{};
  // The formats are those below: one double each.
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

std::string three_digits(double value) {
  const double magnitude = std::fabs(value);
  return formatted(magnitude < 9.995 ? "%.2f" : magnitude < 99.95 ? "%.1f" : "%.0f", value);
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  double value = static_cast<double>(bytes);
  if (std::fabs(value) < 1000) {
    return formatted("%.0f B", value);
  }
  const std::array<const char*, 5> units = {" kB", " MB", " GB", " TB", " PB"};
  size_t unit = 0;
  value /= 1000;
  while (std::fabs(value) >= 999.5 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  return three_digits(value) + units.at(unit);
}

std::string seconds_text(double seconds) {
  if (seconds == 0) {
    return "0 s";
  }
  if (std::fabs(seconds) < 0.9995e-3) {
    return three_digits(seconds * 1e6) + " us";
  }
  if (std::fabs(seconds) < 0.9995) {
    return three_digits(seconds * 1e3) + " ms";
  }
  return three_digits(seconds) + " s";
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) {
    return "?";
  }
  const auto total = static_cast<int64_t>(std::llround(seconds));
  const auto two = [](int64_t value) { return (value < 10 ? "0" : "") + std::to_string(value); };
  if (total < 60) {
    return std::to_string(total) + "s";
  }
  if (total < 3600) {
    return std::to_string(total / 60) + "m" + two(total % 60) + "s";
  }
  return std::to_string(total / 3600) + "h" + two(total % 3600 / 60) + "m";
}

std::string count_text(double count) {
  if (std::fabs(count) < 999.5) {
    return formatted("%.0f", count);
  }
  if (std::fabs(count) < 999.5e3) {
    return three_digits(count / 1e3) + "k";
  }
  if (std::fabs(count) < 999.5e6) {
    return three_digits(count / 1e6) + "M";
  }
  return three_digits(count / 1e9) + "G";
}

std::string decimal_text(double value, int digits) {
  if (std::isnan(value)) {
    return "-";
  }
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, value);
  return buffer.data();
}

std::string scale_text(double scale) {
  int exponent = 0;
  if (std::isfinite(scale) && scale > 0 && std::frexp(scale, &exponent) == 0.5) {
    return exponent - 1 == 0 ? "1" : "2^" + std::to_string(exponent - 1);
  }
  return formatted("%.4g", scale);
}

}  // namespace mantissa::report
