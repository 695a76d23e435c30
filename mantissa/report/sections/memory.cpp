#include <algorithm>
#include <map>
#include <utility>

#include "mantissa/report/section.h"

namespace mantissa::report {
namespace {

using record::Summary;

// The names in the order in which a step makes them, then whatever else there is.
template <typename Value>
std::vector<BarPart> parts_of(const std::vector<std::map<std::string, Value>>& bars,
                              std::vector<std::string> names) {
  for (const auto& bar : bars) {
    for (const auto& [name, value] : bar) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(name);
      }
    }
  }
  std::vector<BarPart> parts;
  for (const std::string& name : names) {
    BarPart part{name, {}};
    bool is_there = false;
    for (const auto& bar : bars) {
      const auto found = bar.find(name);
      is_there = is_there || (found != bar.end() && found->second != 0);
      part.values.push_back(found == bar.end() ? 0 : static_cast<double>(found->second));
    }
    if (is_there) {
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

Cell bytes_cell(double bytes) { return number_cell(bytes, quantity_text(Quantity::bytes, bytes)); }

Table table_of(const BarChart& chart, const std::string& id, const std::string& caption) {
  Table table = figures_of(chart);
  table.id = id;
  table.caption = caption;
  table.columns.front().name = "run";
  return table;
}

}  // namespace

Section memory_section(const Material& material) {
  Section section{.id = "memory", .title = "Memory"};
  BarChart peak{.id = "peak-bytes",
                .title = "Peak of tensor bytes, by category",
                .description = "Bytes of tensors at the moment when most were alive.",
                .x = "bytes",
                .quantity = Quantity::bytes};
  BarChart state{.id = "parameter-bytes",
                 .title = "Bytes a parameter",
                 .description =
                     "What each parameter takes in weights, gradients, masters and "
                     "moments.",
                 .x = "bytes a parameter"};
  Table holders{.id = "peak-holders", .caption = "Who held the peak"};
  holders.columns = {{"run"}, {"holder"}, {"bytes", true}, {"share of the peak", true}};
  std::vector<std::map<std::string, int64_t>> peaks;
  std::vector<std::map<std::string, double>> states;
  for (const Run& run : material.runs) {
    const Summary summary = summary_of(run);
    double total = 0;
    for (const auto& [category, bytes] : summary.peak_bytes) {
      total += static_cast<double>(bytes);
    }
    if (total > 0) {
      peak.bars.push_back(run.name);
      peaks.push_back(summary.peak_bytes);
    }
    if (!summary.bytes_per_param.empty()) {
      state.bars.push_back(run.name);
      states.push_back(summary.bytes_per_param);
    }
    std::vector<std::pair<std::string, int64_t>> largest(summary.peak_holders.begin(),
                                                         summary.peak_holders.end());
    std::stable_sort(largest.begin(), largest.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    for (const auto& [holder, bytes] : largest) {
      const double share = 100 * static_cast<double>(bytes) / total;
      holders.rows.push_back({text_cell(run.name), text_cell(holder),
                              bytes_cell(static_cast<double>(bytes)),
                              number_cell(share, quantity_text(Quantity::percent, share))});
    }
  }
  peak.parts =
      parts_of(peaks, {"weights", "gradients", "optimizer", "activations", "casts", "other"});
  state.parts = parts_of(states, {"weights", "gradients", "masters", "moments", "ema"});
  if (!peak.bars.empty()) {
    section.tables.push_back(table_of(peak, "memory", "Peak of tensor bytes"));
    section.charts.emplace_back(std::move(peak));
  }
  if (!state.bars.empty()) {
    section.charts.emplace_back(std::move(state));
  }
  if (!holders.rows.empty()) {
    section.tables.push_back(std::move(holders));
  }
  return section;
}

}  // namespace mantissa::report
