#include "mantissa/report/natural_order.h"

#include <algorithm>
#include <cctype>

namespace mantissa::report {

bool comes_before(const std::string& a, const std::string& b) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const auto number_at = [&](const std::string& text, size_t& place) {
        const size_t begin = std::min(text.find_first_not_of('0', place), text.size());
        place = begin;
        while (place < text.size() && is_digit(text[place])) {
          ++place;
        }
        return text.substr(begin, place - begin);
      };
      const std::string x = number_at(a, i);
      const std::string y = number_at(b, j);
      if (x != y) {
        return x.size() != y.size() ? x.size() < y.size() : x < y;
      }
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  return a.size() - i != b.size() - j ? a.size() - i < b.size() - j : a < b;
}

}  // namespace mantissa::report
