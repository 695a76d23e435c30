#include "mantissa/report/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/report/quantity.h"

namespace mantissa::report {
namespace {

using nlohmann::ordered_json;

std::string significant(double value, int digits) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*g", digits, value);
  return buffer.data();
}

// Six digits are more than a screen shows; whole numbers, such as steps, stay what they are.
ordered_json json_of(double value) {
  constexpr double kLargestWhole = 1e15;
  if (!std::isfinite(value)) {
    return nullptr;
  }
  if (value == std::floor(value) && std::fabs(value) < kLargestWhole) {
    return static_cast<int64_t>(value);
  }
  return std::strtod(significant(value, 6).c_str(), nullptr);
}

template <typename Item, typename Convert>
ordered_json array_of(const std::vector<Item>& items, Convert convert) {
  ordered_json result = ordered_json::array();
  for (const Item& item : items) {
    result.push_back(convert(item));
  }
  return result;
}

const char* name_of(Scale scale) {
  return scale == Scale::linear        ? "linear"
         : scale == Scale::logarithmic ? "logarithmic"
                                       : "powers_of_two";
}

const char* name_of(Quantity quantity) {
  switch (quantity) {
    case Quantity::seconds:
      return "seconds";
    case Quantity::bytes:
      return "bytes";
    case Quantity::scale:
      return "scale";
    case Quantity::percent:
      return "percent";
    default:
      return "number";
  }
}

const char* name_of(LineStyle style) {
  switch (style) {
    case LineStyle::dashes:
      return "dashes";
    case LineStyle::stairs:
      return "stairs";
    case LineStyle::crosses:
      return "crosses";
    default:
      return "line";
  }
}

ordered_json json_of(const Line& line) {
  ordered_json json;
  json["name"] = line.name;
  json["color"] = line.color;
  json["style"] = name_of(line.style);
  json["x"] = array_of(line.points, [](const Point& point) { return json_of(point.x); });
  json["y"] = array_of(line.points, [](const Point& point) { return json_of(point.y); });
  if (line.has_band) {
    json["low"] = array_of(line.points, [](const Point& point) { return json_of(point.low); });
    json["high"] = array_of(line.points, [](const Point& point) { return json_of(point.high); });
  }
  return json;
}

ordered_json json_of(const LineChart& chart) {
  ordered_json json;
  json["kind"] = "lines";
  json["x"] = chart.x;
  json["y"] = chart.y;
  json["scale"] = name_of(chart.scale);
  json["quantity"] = name_of(chart.quantity);
  json["lines"] = array_of(chart.lines, [](const Line& line) { return json_of(line); });
  if (!chart.spans.empty()) {
    json["spans"] = array_of(chart.spans, [](const Span& span) {
      return ordered_json{{"name", span.name},
                          {"low", json_of(span.low)},
                          {"full", json_of(span.full)},
                          {"high", json_of(span.high)}};
    });
  }
  return json;
}

ordered_json json_of(const BarChart& chart) {
  ordered_json json;
  json["kind"] = "bars";
  json["x"] = chart.x;
  json["quantity"] = name_of(chart.quantity);
  json["bars"] = chart.bars;
  json["parts"] = array_of(chart.parts, [](const BarPart& part) {
    return ordered_json{{"name", part.name},
                        {"values", array_of(part.values, [](double v) { return json_of(v); })}};
  });
  return json;
}

ordered_json json_of(const Measure& measure) {
  ordered_json json;
  json["name"] = measure.name;
  json["unit"] = measure.unit;
  json["worst"] = json_of(measure.worst);
  json["best"] = json_of(measure.best);
  json["values"] = array_of(measure.values, [](const std::vector<double>& row) {
    // A cell is read in a tooltip.
    return array_of(row, [](double value) {
      return std::isfinite(value)
                 ? ordered_json(std::strtod(significant(value, 3).c_str(), nullptr))
                 : ordered_json(nullptr);
    });
  });
  return json;
}

ordered_json json_of(const HeatMap& chart) {
  ordered_json json;
  json["kind"] = "heat";
  json["first"] = chart.first;
  json["x"] = chart.x;
  json["grids"] = array_of(chart.grids, [](const Grid& grid) {
    return ordered_json{
        {"name", grid.name},
        {"rows", grid.rows},
        {"columns", grid.columns},
        {"measures", array_of(grid.measures, [](const Measure& m) { return json_of(m); })}};
  });
  return json;
}

Table figures(const LineChart& chart) {
  Table table;
  table.columns = {{"line", false},    {"points", true},  {"first", true}, {"last", true},
                   {"smallest", true}, {"largest", true}, {"gaps", true}};
  for (const Line& line : chart.lines) {
    std::vector<double> values;
    for (const Point& point : line.points) {
      if (std::isfinite(point.y)) {
        values.push_back(point.y);
      }
    }
    const auto cell = [&](double value) {
      return number_cell(value, quantity_text(chart.quantity, value));
    };
    std::vector<Cell> row = {text_cell(line.name), count_cell(static_cast<int64_t>(values.size()))};
    if (values.empty()) {
      row.resize(6, Cell{"-", std::nullopt});
    } else {
      row.push_back(cell(values.front()));
      row.push_back(cell(values.back()));
      row.push_back(cell(*std::min_element(values.begin(), values.end())));
      row.push_back(cell(*std::max_element(values.begin(), values.end())));
    }
    row.push_back(count_cell(static_cast<int64_t>(line.points.size() - values.size())));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table figures(const BarChart& chart) {
  Table table;
  table.columns = {{"bar", false}};
  for (const BarPart& part : chart.parts) {
    table.columns.push_back({part.name, true});
  }
  table.columns.push_back({"total", true});
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    std::vector<Cell> row = {text_cell(chart.bars[i])};
    double total = 0;
    for (const BarPart& part : chart.parts) {
      const double value = part.values.at(i);
      row.push_back(number_cell(value, quantity_text(chart.quantity, value)));
      total += std::isfinite(value) ? value : 0;
    }
    row.push_back(number_cell(total, quantity_text(chart.quantity, total)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table figures(const HeatMap& chart) {
  Table table;
  table.columns = {{"run", false},
                   {"measure", false},
                   {"row", false},
                   {"worst", true},
                   {"at " + chart.x, false}};
  for (const Grid& grid : chart.grids) {
    for (const Measure& measure : grid.measures) {
      const double sign = measure.worst < measure.best ? 1 : -1;
      for (size_t r = 0; r < grid.rows.size(); ++r) {
        const std::vector<double>& values = measure.values.at(r);
        size_t worst = values.size();
        for (size_t c = 0; c < values.size(); ++c) {
          if (std::isfinite(values[c]) &&
              (worst == values.size() || sign * values[c] < sign * values[worst])) {
            worst = c;
          }
        }
        if (worst < values.size()) {
          table.rows.push_back(
              {text_cell(grid.name), text_cell(measure.name), text_cell(grid.rows[r]),
               number_cell(values[worst], concat(significant(values[worst], 3), " ", measure.unit)),
               text_cell(grid.columns.at(worst))});
        }
      }
    }
  }
  return table;
}

}  // namespace

std::string quantity_text(Quantity quantity, double value) {
  switch (quantity) {
    case Quantity::seconds:
      return seconds_text(value);
    case Quantity::bytes:
      return bytes_text(std::llround(value));
    case Quantity::scale:
      return scale_text(value);
    case Quantity::percent:
      return significant(value, 3) + " %";
    default:
      return significant(value, 5);
  }
}

Table figures_of(const Chart& chart) {
  return std::visit(
      [](const auto& any) {
        Table table = figures(any);
        table.id = any.id + "-figures";
        table.caption = any.title;
        return table;
      },
      chart);
}

std::string to_json(const Chart& chart) {
  const ordered_json json = std::visit(
      [](const auto& any) {
        ordered_json result = json_of(any);
        result["id"] = any.id;
        return result;
      },
      chart);
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace mantissa::report
