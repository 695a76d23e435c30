#include "mantissa/report/heat_grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/base/error.h"

namespace mantissa::report {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// The worse of two, where one may be no number.
double worse(const Measure& measure, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) {
    return std::isnan(a) ? b : a;
  }
  return measure.worst < measure.best ? std::min(a, b) : std::max(a, b);
}

bool says_something(const Measure& measure) {
  return measure.worst < measure.best ||
         std::any_of(measure.values.begin(), measure.values.end(), [](const auto& row) {
           return std::any_of(row.begin(), row.end(), [](double value) { return value > 0; });
         });
}

}  // namespace

std::vector<std::pair<size_t, size_t>> neighbours(size_t count, size_t most) {
  const size_t each = (count + most - 1) / most;
  std::vector<std::pair<size_t, size_t>> ranges;
  for (size_t begin = 0; begin < count; begin += each) {
    ranges.emplace_back(begin, std::min(count, begin + each));
  }
  return ranges;
}

size_t grid_side(double cells, size_t num) {
  return static_cast<size_t>(std::clamp(std::sqrt(cells / static_cast<double>(num)), 16.0, 80.0));
}

HeatGrid::HeatGrid(std::string name, const std::vector<std::string>& rows,
                   const std::vector<int64_t>& steps, std::vector<Measure> measures, size_t most) {
  grid_.name = std::move(name);
  for (const auto& [begin, end] : neighbours(rows.size(), most)) {
    for (size_t i = begin; i < end; ++i) {
      row_of_[rows[i]] = grid_.rows.size();
    }
    grid_.rows.push_back(begin + 1 == end ? rows[begin]
                                          : concat(rows[begin], " to ", rows[end - 1]));
  }
  for (const auto& [begin, end] : neighbours(steps.size(), most)) {
    column_of_.resize(end, grid_.columns.size());
    grid_.columns.push_back(begin + 1 == end ? std::to_string(steps[begin])
                                             : concat(steps[begin], " to ", steps[end - 1]));
  }
  grid_.measures = std::move(measures);
  for (Measure& measure : grid_.measures) {
    measure.values.assign(grid_.rows.size(), std::vector<double>(grid_.columns.size(), kNone));
  }
}

void HeatGrid::put(const std::string& row, size_t column, size_t measure, double value) {
  Measure& to = grid_.measures.at(measure);
  double& cell = to.values[row_of_.at(row)][column_of_.at(column)];
  cell = worse(to, cell, value);
}

Grid HeatGrid::take() {
  std::erase_if(grid_.measures, [](const Measure& measure) { return !says_something(measure); });
  return std::move(grid_);
}

}  // namespace mantissa::report
