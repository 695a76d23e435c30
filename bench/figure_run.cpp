#include "bench/figure_run.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

namespace mantissa::bench {
namespace {

using nlohmann::json;

json rounded(const std::vector<double>& values) {
  json list = json::array();
  for (double value : values) {
    list.push_back(std::round(value * 1e4) / 1e4);
  }
  return list;
}

json side(const std::vector<double>& values, const Case& of) {
  json result = {{"median", median(values)},
                 {"least", *std::min_element(values.begin(), values.end())}};
  if (of.work > 0) {
    result["G" + of.work_unit + "/s"] = of.work * 1e-9 / median(values);
  }
  return result;
}

std::string worst_case(const json& cases) {
  return std::min_element(cases.begin(), cases.end(),
                          [](const json& a, const json& b) {
                            return a["ratio"].get<double>() < b["ratio"].get<double>();
                          })
      ->at("name");
}

void put_bar(json& row, const char* name, const Estimate& estimate, size_t pairs,
             std::optional<double> bar) {
  if (bar) {
    row[name] = {{"ratio", *bar}, {"verdict", to_string(judge(estimate, pairs, bar))}};
  }
}

json available_figure(const Figure& figure, const RunOptions& options) {
  json result = {{"name", figure.name}, {"meaning", figure.meaning}};
  double left_s = options.seconds * figure.share;
  std::vector<std::vector<double>> ratios;
  size_t pairs = 0;
  bool scatters = false;
  for (size_t i = 0; i < figure.cases.size(); ++i) {
    // What short cases leave over goes to those after them; making what is measured is not counted.
    const double budget_s = left_s / static_cast<double>(figure.cases.size() - i);
    const Case& of = figure.cases[i];
    const Samples samples = of.measure({.budget_s = budget_s});
    left_s -= samples.spent_s;
    ratios.push_back(samples.ratios());
    scatters = scatters || samples.scatters;
    pairs = i == 0 ? ratios[0].size() : std::min(pairs, ratios[i].size());
    result["cases"].push_back({{"name", of.name},
                               {"unit", of.unit == Unit::seconds ? "s" : "bytes"},
                               {"ours", side(samples.ours, of)},
                               {"peer", side(samples.peer, of)},
                               {"peer_factor", samples.peer_factor},
                               {"ratio", median(ratios[i])},
                               {"ratios", rounded(ratios[i])}});
  }
  for (const Row& row : figure.rows) {
    const Estimate estimate = summarize(row.summary, ratios, options.seed);
    json line = {{"name", row.name},
                 {"ratio", estimate.value},
                 {"low", estimate.low},
                 {"high", estimate.high},
                 {"pairs", pairs}};
    if (row.summary == Summary::worst && figure.cases.size() > 1) {
      line["worst_case"] = worst_case(result["cases"]);
    }
    const Bar bar = row.bars.of(options.cpu);
    const size_t telling = scatters ? pairs : std::numeric_limits<size_t>::max();
    put_bar(line, "bar", estimate, telling, bar.least);
    put_bar(line, "stretch", estimate, telling, bar.stretch);
    result["rows"].push_back(line);
  }
  return result;
}

}  // namespace

json run_figure(const Figure& figure, const RunOptions& options) {
  json result = {{"name", figure.name}, {"meaning", figure.meaning}};
  if (!figure.unavailable.empty()) {
    result["unavailable"] = figure.unavailable;
    return result;
  }
  try {
    return available_figure(figure, options);
  } catch (const std::exception& error) {
    const std::string message = error.what();
    result["unavailable"] = message.substr(0, message.find('\n'));  // LibTorch's have a stack trace
    result["failed"] = true;
    return result;
  }
}

}  // namespace mantissa::bench
