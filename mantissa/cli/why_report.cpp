#include "mantissa/cli/why_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "mantissa/base/bootstrap.h"
#include "mantissa/base/error.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/speed_json.h"
#include "mantissa/report/speed_verdict.h"
#include "mantissa/report/text_table.h"
#include "mantissa/train/machine.h"

namespace mantissa::cli {
namespace {

using nlohmann::ordered_json;
using numerics::Format;
using Rows = std::vector<std::vector<std::string>>;

constexpr uint64_t kBootstrapSeed = 1;

const std::string& precision_of(const train::TimedSteps& steps) {
  return steps.config.precision.compute;
}

double median_of(const train::TimedSteps& steps) {
  std::vector<double> all;
  for (const std::vector<double>& round : steps.rounds) {
    all.insert(all.end(), round.begin(), round.end());
  }
  return median(std::move(all));
}

// Side by side: the median of each turn beside that of the other run in the same round.
Estimate measured_gain(const train::TimedPair& pair) {
  std::vector<double> ratios;
  for (size_t i = 0; i < pair.first.rounds.size(); ++i) {
    ratios.push_back(median(pair.first.rounds[i]) / median(pair.second.rounds[i]));
  }
  return bootstrap_median(ratios, kBootstrapSeed);
}

double sum_of(const std::map<std::string, double>& phases) {
  double sum = 0;
  for (const auto& [phase, seconds] : phases) {
    sum += seconds;
  }
  return sum;
}

double share_of(const std::map<std::string, double>& phases, const std::string& phase) {
  const auto found = phases.find(phase);
  return found == phases.end() ? 0 : found->second / sum_of(phases);
}

// Small shares of a step are not nothing.
std::string percent(double share) { return report::decimal_text(100 * share, 1) + " %"; }

std::string rate_text(double flops) { return report::decimal_text(1e-9 * flops, 0) + " GFLOP/s"; }

report::Rates rates_of(const monitor::Roofline& roofline, const std::string& precision) {
  return {roofline.flops.at(Format::fp32), roofline.flops.at(numerics::parse_format(precision)),
          roofline.copy_bytes};
}

std::string split_table(const Why& why) {
  const std::array<const train::TimedSteps*, 2> both = {&why.pair.first, &why.pair.second};
  Rows rows = {{""}, {"step time, median"}};
  for (const train::TimedSteps* steps : both) {
    rows[0].push_back(precision_of(*steps));
    rows[1].push_back(report::seconds_text(median_of(*steps)));
  }
  // Waits as they were in the timed steps; the rest, with casts, of those that were timed by
  // operation.
  constexpr std::array<std::pair<const char*, const char*>, 6> kPhases = {
      {{"data", "wait for data"},
       {"forward", "forward"},
       {"backward", "backward"},
       {"casts", "casts"},
       {"optimizer", "optimizer"},
       {"other", "other"}}};
  for (const auto& [key, title] : kPhases) {
    std::vector<std::string>& row = rows.emplace_back();
    row.emplace_back(title);
    for (const train::TimedSteps* steps : both) {
      row.push_back(
          percent(share_of(std::string(key) == "data" ? steps->phases : steps->split.phases, key)));
    }
  }
  return report::text_table(rows);
}

std::string gain_text(double gain) {
  return std::isnan(gain) ? "-" : report::decimal_text(gain, 2);
}

std::string reason_of(const report::OperationGain& gain) {
  if (gain.narrow.calls == 0) {
    return "not in this run";
  }
  const std::string& reason = gain.narrow.reason;
  return gain.narrow.detail.empty() || reason == "hardware"
             ? reason
             : concat(reason, ": ", gain.narrow.detail);
}

std::string operation_table(const Why& why, size_t most_rows) {
  const std::string& narrow = precision_of(why.pair.second);
  const double step_s = why.pair.first.split.step_time_s;
  Rows rows = {{"operation", "scope", "phase", "calls", "fp32", "share", "runs in", narrow,
                "predicted", "measured", "no speed from 16 bits, why"}};
  for (size_t i = 0; i < std::min(most_rows, why.gains.size()); ++i) {
    const report::OperationGain& gain = why.gains[i];
    rows.push_back({gain.fp32.operation, gain.fp32.scope.empty() ? "-" : gain.fp32.scope,
                    gain.fp32.phase, std::to_string(gain.fp32.calls),
                    report::seconds_text(gain.fp32.time_s), percent(gain.fp32.time_s / step_s),
                    gain.narrow.format.empty() ? "-" : gain.narrow.format,
                    gain.narrow.calls == 0 ? "-" : report::seconds_text(gain.narrow.time_s),
                    gain_text(gain.predicted), gain_text(gain.measured), reason_of(gain)});
  }
  std::string text = report::text_table(
      rows, {true, true, true, false, false, false, true, false, false, false, true});
  if (why.gains.size() > most_rows) {
    text += concat(why.gains.size() - most_rows, " more take less; --rows ", why.gains.size(),
                   " shows all\n");
  }
  return text;
}

std::string gain_line(const Why& why) {
  const Estimate& gain = why.facts.measured.value();
  return concat(why.facts.precision, " is ", report::decimal_text(gain.value, 2),
                " times as fast as fp32 (95 % interval ", report::decimal_text(gain.low, 2), " to ",
                report::decimal_text(gain.high, 2), ", ", why.pair.first.rounds.size(),
                " pairs of turns); predicted without casts: ",
                report::decimal_text(why.facts.predicted, 2), "\n");
}

std::string shares_line(const Why& why) {
  std::string line =
      concat("products take ", percent(why.facts.products), " of a ", why.facts.precision,
             " step, those in 16 bits ", percent(why.facts.in_16_bits));
  if (why.facts.widened > 0) {
    line += concat(", of which ", percent(why.facts.widened), " widened to FP32 units");
  }
  return line + concat("; waiting for memory ", percent(why.facts.memory_bound), ", small calls ",
                       percent(why.facts.overhead), "; products alone are ",
                       gain_text(why.facts.product_gain), " times as fast as in fp32\n");
}

ordered_json json_of(const train::TimedSteps& steps) {
  ordered_json json = {{"precision", precision_of(steps)},
                       {"policy", steps.config.precision.policy},
                       {"step_time_s", median_of(steps)},
                       {"rounds", steps.rounds},
                       {"phases", steps.phases}};
  json["time_split"] = ordered_json::parse(record::to_json(record::Entry{0, steps.split}));
  json["time_split"].erase("time_s");
  return json;
}

}  // namespace

Why explain(std::string run_file, train::TimedPair pair, monitor::Roofline roofline) {
  Why why;
  why.run_file = std::move(run_file);
  why.pair = std::move(pair);
  why.roofline = std::move(roofline);
  const std::string& narrow = precision_of(why.pair.second);
  const report::Rates rates = rates_of(why.roofline, narrow);
  std::optional<report::SpeedFacts> facts =
      report::speed_facts({why.pair.second.split}, narrow, rates);
  MANTISSA_CHECK(facts, Error, "why: the steps took no time; use a larger model or batch");
  why.facts = std::move(*facts);
  why.facts.data = share_of(why.pair.second.phases, "data");
  why.gains = report::operation_gains(why.pair.first.split, why.pair.second.split, rates);
  why.facts.product_gain = report::product_gain(why.gains);
  why.facts.predicted = report::predicted_gain(why.pair.first.split, why.gains);
  why.facts.measured = measured_gain(why.pair);
  return why;
}

std::string text_of(const Why& why, size_t most_rows) {
  const std::string& narrow = precision_of(why.pair.second);
  const report::SpeedAnswer answer = report::judge_speed(why.facts);
  return concat(why.run_file, " in fp32 and ", narrow, " (policy ",
                why.pair.second.config.precision.policy, "), in turns, same batches\n",
                train::cpu_description(), ", ", train::environment().at("threads"),
                " threads: products fp32 ", rate_text(why.roofline.flops.at(Format::fp32)), ", ",
                narrow, " ", rate_text(why.roofline.flops.at(numerics::parse_format(narrow))),
                "; memory ", report::bytes_text(static_cast<int64_t>(why.roofline.copy_bytes)),
                "/s\n\n", split_table(why), "\n", operation_table(why, most_rows), "\n",
                shares_line(why), gain_line(why), "verdict: ", to_string(answer.verdict), ": ",
                answer.why, "\n", "do: ", answer.advice, "\n");
}

std::string json_of(const Why& why) {
  ordered_json json = ordered_json::parse(report::to_json(why.facts));
  json["run"] = why.run_file;
  for (const auto& [format, flops] : why.roofline.flops) {
    json["roofline"]["flops"][std::string(numerics::to_string(format))] = flops;
  }
  json["roofline"]["copy_bytes"] = why.roofline.copy_bytes;
  json["runs"] = {json_of(why.pair.first), json_of(why.pair.second)};
  json["operations"] = ordered_json::array();
  for (const report::OperationGain& gain : why.gains) {
    json["operations"].push_back(
        {{"phase", gain.fp32.phase},
         {"scope", gain.fp32.scope},
         {"operation", gain.fp32.operation},
         {"calls", gain.fp32.calls},
         {"fp32_s", gain.fp32.time_s},
         {"format", gain.narrow.format},
         {"narrow_s", gain.narrow.calls == 0 ? ordered_json() : ordered_json(gain.narrow.time_s)},
         {"eligible", gain.fp32.eligible},
         {"in_16_bits", gain.narrow.in_16_bits},
         {"reason", gain.narrow.reason},
         {"detail", gain.narrow.detail},
         {"predicted", gain.predicted},
         {"measured",
          std::isfinite(gain.measured) ? ordered_json(gain.measured) : ordered_json()}});
  }
  return json.dump();
}

}  // namespace mantissa::cli
