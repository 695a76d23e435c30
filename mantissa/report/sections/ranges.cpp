#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/numerics/format.h"
#include "mantissa/report/heat_grid.h"
#include "mantissa/report/natural_order.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/section.h"

namespace mantissa::report {
namespace {

using numerics::Format;
using record::ValueRange;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::array kShown = {Format::bf16, Format::fp16, Format::fp8_e4m3, Format::fp8_e5m2};
constexpr std::array kKinds = {"activation", "gradient", "weight", "update"};

std::string scope_of(const ValueRange& range) {
  return range.scope.empty() ? "(no scope)" : range.scope;
}

int64_t num_nonfinite(const ValueRange& range) {
  return range.nan + range.positive_infinity + range.negative_infinity;
}

// Of the values that are finite and not 0.
int64_t num_ranged(const ValueRange& range) {
  return range.count - range.zeros - num_nonfinite(range);
}

// Bits between the largest value and the largest number of a format; below 0 it overflows.
double headroom(const ValueRange& range, Format format) {
  return range.largest > 0 ? std::log2(numerics::info(format).max / range.largest) : kNone;
}

double percent_of(const ValueRange& range, Format format, const char* what) {
  const auto counts = range.narrow.find(std::string(numerics::to_string(format)));
  if (counts == range.narrow.end() || num_ranged(range) == 0) {
    return num_ranged(range) == 0 ? 0 : kNone;
  }
  const auto found = counts->second.find(what);
  return found == counts->second.end()
             ? kNone
             : 100 * static_cast<double>(found->second) / static_cast<double>(num_ranged(range));
}

double percent_nonfinite(const ValueRange& range) {
  return range.count == 0
             ? 0
             : 100 * static_cast<double>(num_nonfinite(range)) / static_cast<double>(range.count);
}

std::string name_of(Format format) { return std::string(numerics::to_string(format)); }

std::vector<Measure> measures() {
  std::vector<Measure> result;
  for (const Format format : {Format::fp16, Format::fp8_e4m3, Format::fp8_e5m2, Format::bf16}) {
    result.push_back({concat("headroom to the largest number of ", name_of(format)),
                      "bits",
                      0,
                      format == Format::fp8_e4m3 ? 16.0 : 24.0,
                      {}});
  }
  for (const Format format : {Format::fp16, Format::fp8_e4m3, Format::fp8_e5m2}) {
    result.push_back({concat("becomes 0 in ", name_of(format)), "%", 100, 0, {}});
  }
  result.push_back({"not finite", "%", 100, 0, {}});
  return result;
}

std::vector<double> measured(const ValueRange& range) {
  std::vector<double> values;
  for (const Format format : {Format::fp16, Format::fp8_e4m3, Format::fp8_e5m2, Format::bf16}) {
    values.push_back(headroom(range, format));
  }
  for (const Format format : {Format::fp16, Format::fp8_e4m3, Format::fp8_e5m2}) {
    values.push_back(percent_of(range, format, "zero"));
  }
  values.push_back(percent_nonfinite(range));
  return values;
}

bool has_kind(const Run& run, const std::string& kind) {
  return std::any_of(run.ranges.begin(), run.ranges.end(), [&](const record::Ranges& ranges) {
    return std::any_of(ranges.values.begin(), ranges.values.end(),
                       [&](const ValueRange& range) { return range.kind == kind; });
  });
}

// The worst of all names of each scope, by step.
Grid grid_of(const Run& run, const std::string& kind, size_t most) {
  std::set<std::string> seen;
  std::vector<int64_t> steps;
  for (const record::Ranges& ranges : run.ranges) {
    steps.push_back(ranges.step);
    for (const ValueRange& range : ranges.values) {
      if (range.kind == kind) {
        seen.insert(scope_of(range));
      }
    }
  }
  std::vector<std::string> rows(seen.begin(), seen.end());
  std::sort(rows.begin(), rows.end(), comes_before);
  HeatGrid grid(concat(run.name, ", ", kind, "s"), rows, steps, measures(), most);
  for (size_t column = 0; column < run.ranges.size(); ++column) {
    for (const ValueRange& range : run.ranges[column].values) {
      if (range.kind == kind) {
        const std::vector<double> values = measured(range);
        for (size_t m = 0; m < values.size(); ++m) {
          grid.put(scope_of(range), column, m, values[m]);
        }
      }
    }
  }
  return grid.take();
}

using Exponents = std::map<int64_t, int64_t>;

Exponents exponents_of(const Run& run, const std::string& kind) {
  Exponents counts;
  for (const record::Ranges& ranges : run.ranges) {
    for (const ValueRange& range : ranges.values) {
      for (size_t i = 0; range.kind == kind && i < range.exponents.size(); ++i) {
        counts[range.first_exponent + static_cast<int64_t>(i)] += range.exponents[i];
      }
    }
  }
  return counts;
}

// A stair a power of two; shares of what is finite and not 0.
Line line_of(const std::string& name, size_t color, const Exponents& counts) {
  Line line{.name = name, .color = color, .style = LineStyle::stairs};
  int64_t total = 0;
  for (const auto& [exponent, count] : counts) {
    total += count;
  }
  if (total == 0) {
    return line;
  }
  const auto add = [&](int64_t exponent, int64_t count) {
    const double y = 100 * static_cast<double>(count) / static_cast<double>(total);
    line.points.push_back({static_cast<double>(exponent), y, y, y});
  };
  const int64_t last = counts.rbegin()->first;
  for (int64_t exponent = counts.begin()->first; exponent <= last; ++exponent) {
    const auto found = counts.find(exponent);
    add(exponent, found == counts.end() ? 0 : found->second);
  }
  line.points.insert(line.points.begin(), {static_cast<double>(counts.begin()->first), 0, 0, 0});
  line.points.push_back({static_cast<double>(last + 1), 0, 0, 0});
  return line;
}

std::vector<Span> spans() {
  std::vector<Span> result;
  for (const Format format : kShown) {
    const numerics::FormatInfo& info = numerics::info(format);
    result.push_back({name_of(format), std::log2(info.smallest_subnormal),
                      std::log2(info.smallest_normal), std::log2(info.max)});
  }
  return result;
}

std::string spans_sentence() {
  std::string sentence = "In powers of two,";
  for (const Span& span : spans()) {
    sentence += concat(sentence.back() == ',' ? " " : "; ", span.name, " goes from ", span.low,
                       " to ", decimal_text(span.high, 1), ", and is normal from ", span.full);
  }
  return sentence + ".";
}

std::vector<Chart> exponent_charts(const std::vector<const Run*>& runs) {
  std::vector<Chart> charts;
  for (const char* kind : kKinds) {
    LineChart chart{
        .id = concat("exponents-", kind),
        .title = concat("Exponents of ", kind, "s"),
        .description =
            "Of the values that are finite and not 0, the share with each power of two, "
            "over all recorded steps. Bars above show what each format holds, paler "
            "where it is subnormal.",
        .x = "power of two",
        .y = "share of values",
        .quantity = Quantity::percent,
        .lines = {},
        .spans = spans()};
    for (size_t i = 0; i < runs.size(); ++i) {
      Line line = line_of(runs[i]->name, i, exponents_of(*runs[i], kind));
      if (!line.points.empty()) {
        chart.lines.push_back(std::move(line));
      }
    }
    if (!chart.lines.empty()) {
      charts.emplace_back(std::move(chart));
    }
  }
  return charts;
}

// One kind and scope of a run: the worst over steps and names.
struct Row {
  const ValueRange* largest = nullptr;
  double zero_fp16 = 0;
  double zero_e4m3 = 0;
  double zero_e5m2 = 0;
  double nonfinite = 0;
};

std::vector<Row> rows_of(const Run& run) {
  std::map<std::pair<std::string, std::string>, Row> rows;
  for (const record::Ranges& ranges : run.ranges) {
    for (const ValueRange& range : ranges.values) {
      Row& row = rows[{range.kind, range.scope}];
      if (row.largest == nullptr || range.largest > row.largest->largest) {
        row.largest = &range;
      }
      row.zero_fp16 = std::max(row.zero_fp16, percent_of(range, Format::fp16, "zero"));
      row.zero_e4m3 = std::max(row.zero_e4m3, percent_of(range, Format::fp8_e4m3, "zero"));
      row.zero_e5m2 = std::max(row.zero_e5m2, percent_of(range, Format::fp8_e5m2, "zero"));
      row.nonfinite = std::max(row.nonfinite, percent_nonfinite(range));
    }
  }
  std::vector<Row> sorted;
  sorted.reserve(rows.size());
  for (const auto& [key, row] : rows) {
    sorted.push_back(row);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) {
    return (a.nonfinite > 0) != (b.nonfinite > 0) ? a.nonfinite > 0
                                                  : a.largest->largest > b.largest->largest;
  });
  return sorted;
}

Cell percent_cell(double percent) {
  return number_cell(percent, quantity_text(Quantity::percent, percent));
}

void add_rows(const Run& run, size_t most, Table& table) {
  std::vector<Row> rows = rows_of(run);
  if (rows.size() > most) {
    rows.resize(most);
    table.caption = concat("Ranges by layer: of each run the ", most, " with the least headroom");
  }
  for (const Row& row : rows) {
    const ValueRange& range = *row.largest;
    std::vector<Cell> cells = {
        text_cell(run.name),
        text_cell(range.kind),
        text_cell(scope_of(range)),
        text_cell(range.name),
        text_cell(range.format),
        number_cell(range.largest, quantity_text(Quantity::number, range.largest))};
    for (const Format format : kShown) {
      cells.push_back(decimal_cell(headroom(range, format), 1));
    }
    for (const double percent : {row.zero_fp16, row.zero_e4m3, row.zero_e5m2, row.nonfinite}) {
      cells.push_back(percent_cell(percent));
    }
    table.rows.push_back(std::move(cells));
  }
}

}  // namespace

Section ranges_section(const Material& material) {
  Section section{.id = "ranges", .title = "Ranges of values"};
  std::vector<const Run*> runs;
  for (const Run& run : material.runs) {
    if (!run.ranges.empty()) {
      runs.push_back(&run);
    }
  }
  if (runs.empty()) {
    return section;
  }
  section.prose.emplace_back(
      "Headroom is the number of bits between the largest value and the largest number of a "
      "format: "
      "below 0 it overflows. Shares are of the values that are finite and not 0, and say what one "
      "rounding to the format makes of them. Gradients are as they were, with the loss scale.");
  section.prose.push_back(spans_sentence());
  section.charts = exponent_charts(runs);
  HeatMap map{.id = "ranges-headroom",
              .title = "Ranges by layer and step",
              .description =
                  "A cell for each layer and recorded step: the worst of its values. The "
                  "table below has the worst of each layer."};
  // All grids together fit a page of a few megabytes.
  constexpr double kCells = 20000;
  const size_t side = grid_side(kCells, runs.size() * kKinds.size());
  constexpr size_t kMostRows = 2000;
  Table table{.id = "ranges", .caption = "Ranges by layer"};
  table.columns = {{"run"},
                   {"kind"},
                   {"layer"},
                   {"largest in"},
                   {"format"},
                   {"largest", true},
                   {"bits in bf16", true},
                   {"in fp16", true},
                   {"in e4m3", true},
                   {"in e5m2", true},
                   {"0 in fp16", true},
                   {"0 in e4m3", true},
                   {"0 in e5m2", true},
                   {"not finite", true}};
  for (const Run* run : runs) {
    for (const char* kind : kKinds) {
      if (has_kind(*run, kind)) {
        map.grids.push_back(grid_of(*run, kind, side));
      }
    }
    add_rows(*run, std::max<size_t>(20, kMostRows / runs.size()), table);
  }
  section.charts.emplace_back(std::move(map));
  section.tables.push_back(std::move(table));
  return section;
}

}  // namespace mantissa::report
