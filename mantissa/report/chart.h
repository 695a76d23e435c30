#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/report/table.h"

namespace mantissa::report {

// A chart as plain data, which mantissa/report/page/page.js draws. A value that is not finite is a
// gap.

enum class Scale { linear, logarithmic, powers_of_two };

/// How a value reads: `12.3 ms`, `4.56 MB`, `2^16`, `45 %`.
enum class Quantity { number, seconds, bytes, scale, percent };

/// How a value of `quantity` reads.
MANTISSA_API std::string quantity_text(Quantity quantity, double value);

/// `low` and `high` are those of a band around `y`; equal to it where there is none.
struct Point {
  double x = 0;
  double y = 0;
  double low = 0;
  double high = 0;

  bool operator==(const Point&) const = default;
};

enum class LineStyle { line, dashes, stairs, crosses };

struct Line {
  std::string name;
  size_t color = 0;  // lines of one group of runs have the same
  LineStyle style = LineStyle::line;
  bool has_band = false;
  std::vector<Point> points;  // x does not fall
};

/// A part of the axis `x`, drawn as a bar above the lines, paler from `low` to `full`.
struct Span {
  std::string name;
  double low = 0;
  double full = 0;
  double high = 0;
};

/// Lines over `x`, mostly the step.
struct LineChart {
  std::string id;  // letters and hyphens; unique in a report
  std::string title;
  std::string description;  // what is seen, for those who do not see it
  std::string x = "step";
  std::string y;
  Scale scale = Scale::linear;
  Quantity quantity = Quantity::number;
  std::vector<Line> lines;
  std::vector<Span> spans = {};
};

struct BarPart {
  std::string name;
  std::vector<double> values;  // one for each bar
};

/// Horizontal bars of stacked parts.
struct BarChart {
  std::string id;
  std::string title;
  std::string description;
  std::string x;
  Quantity quantity = Quantity::number;
  std::vector<std::string> bars;
  std::vector<BarPart> parts;
};

/// Colours go from `worst` to `best`, which may be the smaller one.
struct Measure {
  std::string name;
  std::string unit;
  double worst = 0;
  double best = 0;
  std::vector<std::vector<double>> values;  // by row and column
};

struct Grid {
  std::string name;
  std::vector<std::string> rows;
  std::vector<std::string> columns;
  std::vector<Measure> measures;
};

/// One of several grids of coloured cells, as the reader chooses.
struct HeatMap {
  std::string id;
  std::string title;
  std::string description;
  std::string x = "step";
  std::vector<Grid> grids;
  size_t first = 0;  // the one that is shown first
};

using Chart = std::variant<LineChart, BarChart, HeatMap>;

/// The figures of a chart for those who do not see it: of a line the first, last, smallest and
/// largest value, of bars all, of grids the worst value of each row and where it is.
MANTISSA_API Table figures_of(const Chart& chart);

/// JSON for the script: what the types above say, with six significant digits.
MANTISSA_API std::string to_json(const Chart& chart);

}  // namespace mantissa::report
