#include <algorithm>

#include "mantissa/report/curves.h"
#include "mantissa/report/section.h"
#include "mantissa/report/statistics.h"

namespace mantissa::report {
namespace {

struct Times {
  std::vector<double> step_s;
  std::vector<double> wait_s;
  std::vector<double> tokens_per_s;
};

Times times_of(const Run& run) {
  Times times;
  for (const record::Step& step : run.steps) {
    times.step_s.push_back(step.step_time_s);
    times.wait_s.push_back(step.data_wait_s);
    times.tokens_per_s.push_back(step.tokens_per_s);
  }
  return times;
}

Cell seconds_cell(double seconds) {
  return number_cell(seconds, quantity_text(Quantity::seconds, seconds));
}

}  // namespace

Section speed_section(const Material& material) {
  Section section{.id = "speed", .title = "Speed"};
  Table table{.id = "step-times", .caption = "Time of a step"};
  table.columns = {{"run"},
                   {"steps", true},
                   {"median", true},
                   {"mean", true},
                   {"95 % are below", true},
                   {"longest", true},
                   {"mean wait for data", true},
                   {"share of waiting", true},
                   {"tokens/s, median", true}};
  BarChart split{.id = "step-split",
                 .title = "Mean time of a step",
                 .description = "Time that a step waits for its batch, and all the rest of it.",
                 .x = "time",
                 .quantity = Quantity::seconds};
  split.parts = {{"all but the wait", {}}, {"wait for data", {}}};
  for (const Run& run : material.runs) {
    const Times times = times_of(run);
    const double step_s = mean(times.step_s);
    const double wait_s = mean(times.wait_s);
    if (!(step_s > 0)) {
      continue;
    }
    const double rate = quantile(times.tokens_per_s, 0.5);
    const double share = 100 * wait_s / step_s;
    table.rows.push_back({text_cell(run.name), count_cell(static_cast<int64_t>(run.steps.size())),
                          seconds_cell(quantile(times.step_s, 0.5)), seconds_cell(step_s),
                          seconds_cell(quantile(times.step_s, 0.95)),
                          seconds_cell(quantile(times.step_s, 1)), seconds_cell(wait_s),
                          number_cell(share, quantity_text(Quantity::percent, share)),
                          decimal_cell(rate, 0)});
    split.bars.push_back(run.name);
    split.parts[0].values.push_back(std::max(0.0, step_s - wait_s));
    split.parts[1].values.push_back(wait_s);
  }
  if (table.rows.empty()) {
    return section;
  }
  const std::vector<double>& all_waits = split.parts[1].values;
  if (std::count(all_waits.begin(), all_waits.end(), 0) == std::ssize(all_waits)) {
    section.prose.emplace_back("No step waited for its data.");
    split.description = "Mean over all steps; none waited for its batch.";
    split.parts = {{"the whole step", split.parts[0].values}};
  }
  LineChart curve{.id = "step-time",
                  .title = "Time of each step",
                  .description = "Seconds that each step took, the wait for data included.",
                  .y = "time",
                  .scale = Scale::logarithmic,
                  .quantity = Quantity::seconds};
  curve.lines = lines_of_groups(material, [](const Run& run) {
    return curve_of_steps(run, [](const record::Step& step) { return step.step_time_s; });
  });
  LineChart waits{.id = "data-wait",
                  .title = "Wait for data in each step",
                  .description = "Seconds of each step that were spent waiting for its batch.",
                  .y = "time",
                  .quantity = Quantity::seconds};
  waits.lines = lines_of_groups(material, [](const Run& run) {
    return curve_of_steps(run, [](const record::Step& step) { return step.data_wait_s; });
  });
  section.charts.emplace_back(std::move(curve));
  section.charts.emplace_back(std::move(split));
  // A few microseconds are what asking costs.
  constexpr double kWorthACurve = 0.01;
  if (std::any_of(material.runs.begin(), material.runs.end(), [](const Run& run) {
        const Times times = times_of(run);
        return quantile(times.wait_s, 0.99) > kWorthACurve * mean(times.step_s);
      })) {
    section.charts.emplace_back(std::move(waits));
  }
  section.tables.push_back(std::move(table));
  return section;
}

}  // namespace mantissa::report
