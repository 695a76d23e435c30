#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

#include "mantissa/base/error.h"
#include "mantissa/report/comparison.h"
#include "mantissa/report/section.h"
#include "mantissa/report/statistics.h"

namespace mantissa::report {
namespace {

using record::Summary;

Cell cell_of(const Figure& figure, const Summary& summary) {
  const auto number = figure.number(summary);
  return number ? Cell{figure.text(summary), number} : Cell{"-", std::nullopt};
}

Table table_of_runs(const Material& material) {
  Table table{.id = "runs", .caption = "Runs"};
  table.columns = {{"run"}, {"precision"}, {"policy"}, {"seed", true}, {"ended by"}};
  table.columns.push_back({"parameters", true});
  const std::vector<Figure> figures = comparison_figures();
  for (const Figure& figure : figures) {
    if (!figure.is_part) {
      table.columns.push_back({figure.name, true});
    }
  }
  for (const Run& run : material.runs) {
    const Summary summary = summary_of(run);
    std::vector<Cell> row = {text_cell(run.name), text_cell(summary.precision),
                             text_cell(summary.policy)};
    row.push_back(summary.seed < 0 ? Cell{"-", std::nullopt} : count_cell(summary.seed));
    row.push_back(text_cell(run.summary ? summary.stopped_by : "not ended"));
    row.push_back(summary.params == 0 ? Cell{"-", std::nullopt} : count_cell(summary.params));
    for (const Figure& figure : figures) {
      if (!figure.is_part) {
        row.push_back(cell_of(figure, summary));
      }
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// What seeds alone do to the figures.
Table table_of_groups(const Material& material) {
  Table table{.id = "seeds", .caption = "The same run from several seeds"};
  table.columns = {{"runs"},
                   {"number", true},
                   {"validation, mean", true},
                   {"smallest", true},
                   {"largest", true},
                   {"standard deviation", true},
                   {"step time, median", true},
                   {"skipped steps", true}};
  constexpr int kDigits = 4;
  for (const RunGroup& group : material.groups) {
    std::vector<double> bits;
    std::vector<double> times;
    int64_t skipped = 0;
    for (const size_t i : group.runs) {
      const Summary summary = summary_of(material.runs[i]);
      bits.push_back(summary.bits_per_base);
      times.push_back(summary.step_time_s);
      skipped += summary.skipped_steps;
    }
    const double time = quantile(times, 0.5);
    table.rows.push_back(
        {text_cell(group.name), count_cell(static_cast<int64_t>(bits.size())),
         decimal_cell(mean(bits), kDigits), decimal_cell(quantile(bits, 0), kDigits),
         decimal_cell(quantile(bits, 1), kDigits), decimal_cell(standard_deviation(bits), kDigits),
         number_cell(time, quantity_text(Quantity::seconds, time)), count_cell(skipped)});
  }
  return table;
}

// The lines of `mantissa compare`, where each group is a precision: of the medians of its runs.
std::vector<std::string> verdicts(const Material& material) {
  std::vector<Summary> summaries;
  std::set<std::string> precisions;
  std::set<int64_t> sizes;
  for (const RunGroup& group : material.groups) {
    std::vector<double> times;
    std::optional<Summary> median;
    for (const size_t i : group.runs) {
      if (const std::optional<Summary>& summary = material.runs[i].summary) {
        times.push_back(summary->step_time_s);
        median = median ? median : summary;
      }
    }
    if (median) {
      median->step_time_s = quantile(times, 0.5);
      precisions.insert(median->precision);
      sizes.insert(median->params);
      summaries.push_back(*median);
    }
  }
  std::vector<std::string> lines;
  if (precisions.size() != summaries.size() || sizes.size() != 1) {
    return lines;
  }
  std::istringstream texts(slower_lines(summaries) + larger_lines(summaries));
  for (std::string line; std::getline(texts, line);) {
    if (line.starts_with("  ") && !lines.empty()) {
      lines.back() += ";" + line.substr(1);
    } else {
      lines.push_back(line);
    }
  }
  return lines;
}

}  // namespace

Section comparison_section(const Material& material) {
  Section section{.id = "comparison", .title = "Comparison"};
  section.tables.push_back(table_of_runs(material));
  if (std::any_of(material.groups.begin(), material.groups.end(),
                  [](const RunGroup& group) { return group.runs.size() > 1; })) {
    section.tables.push_back(table_of_groups(material));
  }
  std::set<int64_t> sizes;
  for (const Run& run : material.runs) {
    if (run.summary) {
      sizes.insert(run.summary->params);
    }
  }
  if (sizes.size() > 1) {
    section.prose.emplace_back(
        "The runs differ in their number of parameters: what differs between them is not the "
        "precision alone.");
  }
  for (std::string& line : verdicts(material)) {
    section.prose.push_back(std::move(line));
  }
  return section;
}

}  // namespace mantissa::report
