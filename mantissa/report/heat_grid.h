#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/report/chart.h"

namespace mantissa::report {

/// `count` things in at most `most` runs of neighbours, [begin, end) each.
MANTISSA_API std::vector<std::pair<size_t, size_t>> neighbours(size_t count, size_t most);

/// Rows, and columns, of each of `num` grids that together have about `cells` cells: 16 to 80.
size_t grid_side(double cells, size_t num);

/// Fills a Grid with the worst value of each cell. Of more rows or columns than `most` neighbours
/// are one.
///
///     HeatGrid grid(run.name, layers, steps, measures, 80);
///     grid.put(layer, column, measure, value);
///     map.grids.push_back(grid.take());
class MANTISSA_API HeatGrid {
 public:
  /// `measures` without values.
  HeatGrid(std::string name, const std::vector<std::string>& rows,
           const std::vector<int64_t>& steps, std::vector<Measure> measures, size_t most);

  /// NaN: no value. `column` is a place in `steps`.
  void put(const std::string& row, size_t column, size_t measure, double value);

  /// Without measures whose best is 0 and that are nowhere above it: all zeros are no news.
  Grid take();

 private:
  Grid grid_;
  std::map<std::string, size_t> row_of_;
  std::vector<size_t> column_of_;
};

}  // namespace mantissa::report
