#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "mantissa/base/error.h"
#include "mantissa/record/operation_sums.h"
#include "mantissa/report/section.h"
#include "mantissa/report/speed_facts.h"
#include "mantissa/report/speed_verdict.h"
#include "mantissa/report/statistics.h"

namespace mantissa::report {
namespace {

using record::OperationRow;
using record::TimeSplit;

struct PhaseName {
  const char* key;
  const char* title;
};

// In the order of a step.
constexpr std::array<PhaseName, 7> kPhases = {{{"data", "wait for data"},
                                               {"forward", "forward"},
                                               {"backward", "backward"},
                                               {"casts", "casts"},
                                               {"optimizer", "optimizer"},
                                               {"replay", "replay of skipped steps"},
                                               {"other", "other"}}};

using Phases = std::map<std::string, double>;

template <typename Event>
Phases mean_phases(const std::vector<Event>& events) {
  Phases mean;
  double count = 0;
  for (const Event& event : events) {
    count += event.phases.empty() ? 0 : 1;
    for (const auto& [phase, seconds] : event.phases) {
      mean[phase] += seconds;
    }
  }
  for (auto& [phase, seconds] : mean) {
    seconds /= count;
  }
  return mean;
}

// Casts are known of steps that were timed by operation alone.
Phases phases_of(const Run& run) {
  return run.time_splits.empty() ? mean_phases(run.steps) : mean_phases(run.time_splits);
}

double sum_of(const Phases& phases) {
  double sum = 0;
  for (const auto& [phase, seconds] : phases) {
    sum += seconds;
  }
  return sum;
}

Cell seconds_cell(double seconds) {
  return number_cell(seconds, quantity_text(Quantity::seconds, seconds));
}

Cell percent_cell(double share) {
  return number_cell(100 * share, quantity_text(Quantity::percent, 100 * share));
}

double phase_of(const Phases& phases, const char* key) {
  const auto found = phases.find(key);
  return found == phases.end() ? 0 : found->second;
}

// Of all steps and all that is between them.
double share_of_validation(const Run& run) {
  double validation_s = 0;
  double steps_s = 0;
  for (const record::Evaluation& evaluation : run.evaluations) {
    validation_s += evaluation.duration_s;
  }
  for (const record::Step& step : run.steps) {
    steps_s += step.step_time_s;
  }
  return validation_s / (validation_s + steps_s);
}

std::optional<SpeedFacts> facts_of(const Run& run) {
  return speed_facts(run.time_splits, summary_of(run).precision);
}

Table phase_table(const Material& material) {
  Table table{.id = "time-split", .caption = "Where the time of a step goes, mean"};
  table.columns = {{"run"}, {"steps", true}, {"step", true}};
  for (const PhaseName& phase : kPhases) {
    table.columns.push_back({phase.title, true});
  }
  for (const char* name : {"products", "products in 16 bits", "small calls", "validation"}) {
    table.columns.push_back({name, true});
  }
  for (const Run& run : material.runs) {
    const Phases phases = phases_of(run);
    const double step_s = sum_of(phases);
    if (!(step_s > 0)) {
      continue;
    }
    const size_t steps = run.time_splits.empty() ? run.steps.size() : run.time_splits.size();
    std::vector<Cell> row = {text_cell(run.name), count_cell(static_cast<int64_t>(steps)),
                             seconds_cell(step_s)};
    for (const PhaseName& phase : kPhases) {
      const bool is_known = !run.time_splits.empty() || std::string(phase.key) != "casts";
      row.push_back(percent_cell(is_known ? phase_of(phases, phase.key) / step_s : kNotKnown));
    }
    const std::optional<SpeedFacts> facts = facts_of(run);
    row.push_back(percent_cell(facts ? facts->products : kNotKnown));
    row.push_back(percent_cell(facts ? facts->in_16_bits : kNotKnown));
    row.push_back(percent_cell(facts ? facts->overhead : kNotKnown));
    row.push_back(percent_cell(share_of_validation(run)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

BarChart phase_chart(const Material& material) {
  BarChart chart{.id = "phases",
                 .title = "Where the time of a step goes",
                 .description = "Mean time of a step by what was done in it.",
                 .x = "time",
                 .quantity = Quantity::seconds};
  for (const PhaseName& phase : kPhases) {
    BarPart part{phase.title, {}};
    for (const Run& run : material.runs) {
      const Phases phases = phases_of(run);
      if (sum_of(phases) > 0) {
        part.values.push_back(phase_of(phases, phase.key));
      }
    }
    if (std::any_of(part.values.begin(), part.values.end(), [](double s) { return s > 0; })) {
      chart.parts.push_back(std::move(part));
    }
  }
  for (const Run& run : material.runs) {
    if (sum_of(phases_of(run)) > 0) {
      chart.bars.push_back(run.name);
    }
  }
  return chart;
}

using Key = std::tuple<std::string, std::string, std::string, std::string, std::string>;

// Sums over the steps of a run, those with the most time first.
std::vector<OperationRow> operations_of(const Run& run) {
  record::OperationSums<Key> sums;
  for (const TimeSplit& split : run.time_splits) {
    for (const OperationRow& row : split.operations) {
      sums.add({row.phase, row.scope, row.operation, row.format, row.reason}, row);
    }
  }
  return sums.by_time();
}

std::string reason_text(const OperationRow& row) {
  return row.detail.empty() ? row.reason : concat(row.reason, ": ", row.detail);
}

Table operation_table(const Material& material) {
  constexpr size_t kMostRows = 40;  // of a run; of many runs fewer, so that a page stays small
  constexpr size_t kAllRows = 400;
  const size_t most_rows = std::clamp<size_t>(kAllRows / material.runs.size(), 5, kMostRows);
  Table table{.id = "operations",
              .caption =
                  "Operations of the steps that were timed by operation: of each run those "
                  "that take most"};
  table.columns = {{"run"},
                   {"operation"},
                   {"scope"},
                   {"phase"},
                   {"format"},
                   {"calls a step", true},
                   {"time a step", true},
                   {"share", true},
                   {"GFLOP/s", true},
                   {"16 bits can"},
                   {"got them"},
                   {"no speed from 16 bits, why"}};
  for (const Run& run : material.runs) {
    const auto steps = static_cast<double>(run.time_splits.size());
    const double step_s = sum_of(mean_phases(run.time_splits));
    const std::vector<OperationRow> rows = operations_of(run);
    for (size_t i = 0; i < std::min(most_rows, rows.size()); ++i) {
      const OperationRow& row = rows[i];
      const double seconds = row.time_s / steps;
      table.rows.push_back(
          {text_cell(run.name), text_cell(row.operation), text_cell(row.scope),
           text_cell(row.phase), text_cell(row.format),
           decimal_cell(static_cast<double>(row.calls) / steps, 0), seconds_cell(seconds),
           percent_cell(seconds / step_s),
           decimal_cell(row.flops > 0 ? 1e-9 * row.flops / row.time_s : kNotKnown, 1),
           text_cell(row.eligible ? "yes" : "no"), text_cell(row.in_16_bits ? "yes" : "no"),
           text_cell(reason_text(row))});
    }
  }
  return table;
}

// Median step time of the runs in FP32; not known without any.
double fp32_step_s(const Material& material) {
  std::vector<double> times;
  for (const Run& run : material.runs) {
    const record::Summary summary = summary_of(run);
    if (summary.precision == "fp32") {
      times.push_back(summary.step_time_s);
    }
  }
  return quantile(times, 0.5);
}

// Of 16-bit runs beside FP32, why they are as fast as they are.
std::vector<std::string> reasons(const Material& material) {
  std::vector<std::string> lines;
  const double before_s = fp32_step_s(material);
  for (const RunGroup& group : material.groups) {
    const Run& run = material.runs[group.runs.front()];
    const record::Summary summary = summary_of(run);
    std::optional<SpeedFacts> facts = facts_of(run);
    const double gain = before_s / summary.step_time_s;
    if ((summary.precision != "bf16" && summary.precision != "fp16") || !facts || !(gain > 0)) {
      continue;
    }
    facts->measured = Estimate{gain, kNotKnown, kNotKnown};
    lines.push_back(concat(run.name, ": ", to_string(judge_speed(*facts))));
  }
  return lines;
}

}  // namespace

Section time_split_section(const Material& material) {
  Section section{.id = "time", .title = "Where the time goes"};
  Table phases = phase_table(material);
  if (phases.rows.empty()) {
    return section;
  }
  section.prose = reasons(material);
  section.charts.emplace_back(phase_chart(material));
  section.tables.push_back(std::move(phases));
  Table operations = operation_table(material);
  if (!operations.rows.empty()) {
    section.tables.push_back(std::move(operations));
  }
  return section;
}

}  // namespace mantissa::report
