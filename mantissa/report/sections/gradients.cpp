#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/report/heat_grid.h"
#include "mantissa/report/natural_order.h"
#include "mantissa/report/section.h"
#include "mantissa/report/statistics.h"

namespace mantissa::report {
namespace {

using Numbers = std::map<std::string, double>;

constexpr double kFp16Largest = 65504;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double number_of(const Numbers& numbers, const char* name) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? kNone : found->second;
}

// Bits between the largest scaled gradient and the largest FP16 number; below 0 it overflows.
double headroom_bits(const Numbers& numbers, double scale) {
  const double largest = number_of(numbers, "largest") * scale;
  return largest > 0 ? std::log2(kFp16Largest / largest) : kNone;
}

struct Kind {
  const char* name;
  const char* unit;
  double worst;
  double best;
  std::function<double(const Numbers&, double scale)> value;
};

std::vector<Kind> kinds() {
  const auto percent = [](const char* name) {
    return [name](const Numbers& numbers, double) { return 100 * number_of(numbers, name); };
  };
  return {{"headroom to FP16's largest, with the loss scale", "bits", 0, 24, headroom_bits},
          {"zero in FP16 without a loss scale", "%", 100, 0, percent("fp16_zero")},
          {"subnormal in FP16 without a loss scale", "%", 100, 0, percent("fp16_subnormal")},
          {"not finite", "%", 100, 0, percent("non_finite")}};
}

// `blocks.3.mlp.up.weight` is of the layer `blocks.3.mlp.up`.
std::string layer_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos || dot == 0 ? parameter : parameter.substr(0, dot);
}

std::vector<const record::Step*> looked_at(const Run& run) {
  std::vector<const record::Step*> steps;
  for (const record::Step& step : run.steps) {
    if (!step.gradients.empty()) {
      steps.push_back(&step);
    }
  }
  return steps;
}

std::vector<std::string> layers_of(const std::vector<const record::Step*>& steps) {
  std::map<std::string, bool> seen;
  for (const record::Step* step : steps) {
    for (const auto& [parameter, numbers] : step->gradients) {
      seen[layer_of(parameter)];
    }
  }
  std::vector<std::string> layers;
  layers.reserve(seen.size());
  for (const auto& [layer, unused] : seen) {
    layers.push_back(layer);
  }
  std::sort(layers.begin(), layers.end(), comes_before);
  return layers;
}

// The worst of the parameters of each layer.
Grid grid_of(const Run& run, size_t most) {
  const std::vector<const record::Step*> steps = looked_at(run);
  std::vector<int64_t> numbers;
  numbers.reserve(steps.size());
  for (const record::Step* step : steps) {
    numbers.push_back(step->step);
  }
  const std::vector<Kind> measured = kinds();
  std::vector<Measure> measures;
  measures.reserve(measured.size());
  for (const Kind& kind : measured) {
    measures.push_back({kind.name, kind.unit, kind.worst, kind.best, {}});
  }
  HeatGrid grid(run.name, layers_of(steps), numbers, std::move(measures), most);
  for (size_t column = 0; column < steps.size(); ++column) {
    for (const auto& [parameter, values] : steps[column]->gradients) {
      for (size_t m = 0; m < measured.size(); ++m) {
        grid.put(layer_of(parameter), column, m, measured[m].value(values, steps[column]->scale));
      }
    }
  }
  return grid.take();
}

// One parameter over all steps that were looked at.
struct ParameterRow {
  std::string parameter;
  double headroom = kNone;
  int64_t headroom_step = 0;
  std::vector<double> norms;
  double largest = 0;
  double flushed = 0;
  double subnormal = 0;
  double zeros = 0;
  double non_finite = 0;
};

std::vector<ParameterRow> parameter_rows(const Run& run) {
  std::map<std::string, ParameterRow> rows;
  for (const record::Step* step : looked_at(run)) {
    for (const auto& [parameter, numbers] : step->gradients) {
      ParameterRow& row = rows[parameter];
      row.parameter = parameter;
      const double headroom = headroom_bits(numbers, step->scale);
      if (std::isnan(row.headroom) || headroom < row.headroom) {
        row.headroom = headroom;
        row.headroom_step = step->step;
      }
      const auto at_most = [&, &values = numbers](double& worst, const char* name) {
        worst = std::max(worst, number_of(values, name));
      };
      row.norms.push_back(number_of(numbers, "norm"));
      at_most(row.largest, "largest");
      at_most(row.flushed, "fp16_zero");
      at_most(row.subnormal, "fp16_subnormal");
      at_most(row.zeros, "zeros");
      at_most(row.non_finite, "non_finite");
    }
  }
  std::vector<ParameterRow> sorted;
  sorted.reserve(rows.size());
  for (auto& [parameter, row] : rows) {
    sorted.push_back(std::move(row));
  }
  std::sort(sorted.begin(), sorted.end(), [](const ParameterRow& a, const ParameterRow& b) {
    return comes_before(a.parameter, b.parameter);
  });
  return sorted;
}

double least_headroom(const Run& run) {
  double least = std::numeric_limits<double>::infinity();
  for (const record::Step* step : looked_at(run)) {
    for (const auto& [parameter, numbers] : step->gradients) {
      const double headroom = headroom_bits(numbers, step->scale);
      least = headroom < least ? headroom : least;
    }
  }
  return least;
}

Cell percent_cell(double share) {
  return number_cell(100 * share, quantity_text(Quantity::percent, 100 * share));
}

void add_rows(const Run& run, size_t most, Table& table) {
  std::vector<ParameterRow> rows = parameter_rows(run);
  if (rows.size() > most) {
    std::stable_sort(rows.begin(), rows.end(), [](const ParameterRow& a, const ParameterRow& b) {
      return std::isnan(b.headroom) ? !std::isnan(a.headroom) : a.headroom < b.headroom;
    });
    rows.resize(most);
    table.caption =
        concat("Gradients by parameter: of each run the ", most, " with the least headroom");
  }
  for (const ParameterRow& row : rows) {
    const double norm = quantile(row.norms, 0.5);
    table.rows.push_back(
        {text_cell(run.name), text_cell(row.parameter), decimal_cell(row.headroom, 1),
         std::isnan(row.headroom) ? Cell{"-", std::nullopt} : count_cell(row.headroom_step),
         number_cell(norm, quantity_text(Quantity::number, norm)),
         number_cell(row.largest, quantity_text(Quantity::number, row.largest)),
         percent_cell(row.flushed), percent_cell(row.subnormal), percent_cell(row.zeros),
         percent_cell(row.non_finite)});
  }
}

}  // namespace

Section gradients_section(const Material& material) {
  Section section{.id = "gradients", .title = "Gradients by layer"};
  std::vector<const Run*> runs;
  for (const Run& run : material.runs) {
    if (!looked_at(run).empty()) {
      runs.push_back(&run);
    }
  }
  if (runs.empty()) {
    return section;
  }
  section.prose.emplace_back(
      "Headroom is the number of bits between the largest gradient, times the loss scale of its "
      "step, and 65504, the largest number of FP16: at 0 it overflows. The shares say what FP16 "
      "would do to the unscaled gradients. A layer shows the worst of its parameters.");
  HeatMap map{.id = "headroom",
              .title = "Gradients by layer and step",
              .description =
                  "A cell for each layer and each step whose gradients were recorded; "
                  "the table below has the worst of each layer."};
  // All grids together fit a page of a few megabytes.
  constexpr double kCells = 40000;
  const size_t side = grid_side(kCells, runs.size());
  Table table{.id = "parameters", .caption = "Gradients by parameter"};
  table.columns = {{"run"},
                   {"parameter"},
                   {"least headroom, bits", true},
                   {"at step", true},
                   {"norm, median", true},
                   {"largest", true},
                   {"most zero in FP16", true},
                   {"most subnormal in FP16", true},
                   {"most exact zeros", true},
                   {"most not finite", true}};
  constexpr size_t kMostRows = 2000;
  double least = std::numeric_limits<double>::infinity();
  for (const Run* run : runs) {
    map.grids.push_back(grid_of(*run, side));
    const double own = least_headroom(*run);
    if (own < least) {
      least = own;
      map.first = map.grids.size() - 1;
    }
    add_rows(*run, std::max<size_t>(20, kMostRows / runs.size()), table);
  }
  section.charts.emplace_back(std::move(map));
  section.tables.push_back(std::move(table));
  return section;
}

}  // namespace mantissa::report
