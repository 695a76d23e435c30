#include <algorithm>
#include <map>

#include "mantissa/base/error.h"
#include "mantissa/report/curves.h"
#include "mantissa/report/decimation.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/section.h"

namespace mantissa::report {
namespace {

bool has_scale(const Run& run) {
  return std::any_of(run.steps.begin(), run.steps.end(),
                     [](const record::Step& step) { return step.scale != 1 || step.skipped; });
}

Point point_of(const record::Step& step) {
  return {static_cast<double>(step.step), step.scale, step.scale, step.scale};
}

// The message that the training loop writes after a skipped step.
std::map<int64_t, std::string> reasons_of(const Run& run) {
  std::map<int64_t, std::string> reasons;
  for (const record::Message& message : run.messages) {
    const std::string beginning = concat("step ", message.step, " skipped: ");
    if (message.text.starts_with(beginning)) {
      reasons[message.step] = message.text.substr(beginning.size());
    }
  }
  return reasons;
}

}  // namespace

Section scale_section(const Material& material) {
  Section section{.id = "scale", .title = "Loss scale"};
  LineChart timeline{.id = "loss-scale",
                     .title = "Loss scale, with the steps that were skipped",
                     .description =
                         "The factor of the loss at each step; a cross marks a step that "
                         "was skipped because a gradient was not finite.",
                     .y = "loss scale",
                     .scale = Scale::powers_of_two,
                     .quantity = Quantity::scale};
  Table table{.id = "skipped-steps", .caption = "Skipped steps"};
  table.columns = {{"run"}, {"step", true}, {"loss scale", true}, {"bits/base", true}, {"reason"}};
  const auto num_lines =
      static_cast<size_t>(std::count_if(material.runs.begin(), material.runs.end(), has_scale));
  if (num_lines == 0) {
    return section;
  }
  constexpr size_t kMostRows = 2000;
  const size_t rows_per_run = std::max<size_t>(20, kMostRows / num_lines);
  size_t num_skipped = 0;
  size_t num_drawn = 0;
  for (const Run& run : material.runs) {
    if (!has_scale(run)) {
      continue;
    }
    const size_t color = num_drawn++;
    Line scales{.name = run.name, .color = color, .style = LineStyle::stairs};
    Line skips{.name = run.name + ", skipped", .color = color, .style = LineStyle::crosses};
    const std::map<int64_t, std::string> reasons = reasons_of(run);
    for (const record::Step& step : run.steps) {
      scales.points.push_back(point_of(step));
      if (!step.skipped) {
        continue;
      }
      ++num_skipped;
      skips.points.push_back(point_of(step));
      if (skips.points.size() <= rows_per_run) {
        const auto reason = reasons.find(step.step);
        table.rows.push_back({text_cell(run.name), count_cell(step.step),
                              number_cell(step.scale, scale_text(step.scale)),
                              decimal_cell(step.bits_per_base, 4),
                              text_cell(reason == reasons.end() ? "" : reason->second)});
      }
    }
    scales.points = decimate(scales.points, points_per_line(2 * num_lines));
    timeline.lines.push_back(std::move(scales));
    if (!skips.points.empty()) {
      skips.points = decimate(skips.points, points_per_line(2 * num_lines));
      timeline.lines.push_back(std::move(skips));
    }
  }
  if (table.rows.size() < num_skipped) {
    table.caption += concat(": the first ", rows_per_run, " of each run, ", num_skipped, " in all");
  }
  section.charts.emplace_back(std::move(timeline));
  if (!table.rows.empty()) {
    section.tables.push_back(std::move(table));
  }
  return section;
}

}  // namespace mantissa::report
