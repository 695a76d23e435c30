#include "mantissa/ops/cpu/right_angle_plan.h"

#include <array>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

namespace mantissa::ops::cpu {
namespace {

using Complex = std::complex<double>;

constexpr std::array<int64_t, 12> kFirstRadices = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14};

// Of a row, about, in vector operations: a step of radix 4, and the two last ones with their
// factors and transpositions, by their number; the first step by what was measured, for a pass more
// over the array costs as much as its arithmetic.
double cost(int64_t rows, int64_t first_radix, int64_t steps) {
  return static_cast<double>(rows) * static_cast<double>(first_radix + 8 * steps + 24);
}

// e^(2 pi i turns)
Complex root(double turns) { return std::polar(1.0, 2 * std::numbers::pi * turns); }

void append(std::vector<float>& list, Complex number) {
  list.push_back(static_cast<float>(number.real()));
  list.push_back(static_cast<float>(number.imag()));
}

}  // namespace

RightAnglePlan::RightAnglePlan(int64_t length) {
  double least = std::numeric_limits<double>::infinity();
  int64_t step_count = 0;
  for (const int64_t radix : kFirstRadices) {
    int64_t candidate = radix * 16;
    int64_t count = 2;
    for (; candidate * kColumns < length; candidate *= 4) {
      ++count;
    }
    if (cost(candidate, radix, count) < least) {
      least = cost(candidate, radix, count);
      rows = candidate;
      first_radix = radix;
      step_count = count;
    }
  }
  // y^(rows / first_radix) = e^(2 pi i turns) of each block.
  std::vector<double> turns;
  for (int64_t q = 0; q < first_radix; ++q) {
    turns.push_back((static_cast<double>(q) + 0.25) / static_cast<double>(first_radix));
    for (int64_t p = 0; p < first_radix; ++p) {
      append(first_powers, root(turns.back() * static_cast<double>(p)));
    }
  }
  for (int64_t step = 0; step < step_count; ++step) {
    steps.emplace_back();
    std::vector<double> next;
    for (const double turn : turns) {
      const Complex z = root(turn / 4);
      append(steps.back().factors, z);
      append(steps.back().factors, z * z);
      append(steps.back().factors, z * z * z);
      for (int s = 0; s < 4; ++s) {
        next.push_back((turn + s) / 4);
      }
    }
    turns = std::move(next);
  }
  values.resize(static_cast<size_t>(4 * rows));
  for (int64_t row = 0; row < rows; ++row) {
    auto at = static_cast<size_t>(row / kColumns * 4 * kColumns + row % kColumns);
    const Complex x = root(turns[static_cast<size_t>(row)] / kColumns);
    for (const Complex power : {x, x * x * x * x}) {
      values[at] = static_cast<float>(power.real());
      values[at + kColumns] = static_cast<float>(power.imag());
      at += 2 * kColumns;
    }
  }
}

}  // namespace mantissa::ops::cpu
