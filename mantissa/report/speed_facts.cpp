#include "mantissa/report/speed_facts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "mantissa/base/error.h"
#include "mantissa/record/operation_sums.h"

namespace mantissa::report {
namespace {

using record::OperationRow;
using record::TimeSplit;

bool is_of_pass(const OperationRow& row) {
  return row.phase == "forward" || row.phase == "backward";
}

double phase_of(const TimeSplit& split, const std::string& phase) {
  const auto found = split.phases.find(phase);
  return found == split.phases.end() ? 0 : found->second;
}

bool is_small(const OperationRow& row) {
  return row.calls > 0 && row.time_s < kSmallCall_s * static_cast<double>(row.calls);
}

// Its bytes take longer than its arithmetic, and are what its time is made of: half of it at least,
// and not twice of it, which caches would have spared.
bool is_memory_bound(const OperationRow& row, double flops_per_s, const Rates& rates) {
  const double bytes_s = row.bytes / rates.copy_bytes;
  return bytes_s > row.flops / flops_per_s && 2 * bytes_s >= row.time_s &&
         bytes_s <= 2 * row.time_s;
}

// The sums of all steps; divided by the sum of their times they are shares.
struct Sums {
  double step_s = 0;
  double rows_of_pass_s = 0;
  double pass_s = 0;
  double memory_bound_s = 0;
  std::map<std::string, ReasonShare> reasons;
  std::map<std::string, double> longest_s;  // of a reason, one row
};

void add_reason(const OperationRow& row, Sums& sums) {
  if (row.reason.empty() || row.reason == "cast" || !is_of_pass(row)) {
    return;
  }
  ReasonShare& share = sums.reasons[row.reason];
  share.reason = row.reason;
  share.share += row.time_s;
  double& longest = sums.longest_s[row.reason];
  if (row.time_s > longest) {
    longest = row.time_s;
    share.detail = row.detail;
    share.operation = concat(row.operation, row.scope.empty() ? "" : " in ", row.scope);
  }
}

bool is_unsupported(const OperationRow& row) {
  return row.reason == "policy" || row.reason == "kernel" || row.reason == "shape";
}

void add_row(const OperationRow& row, const Rates& rates, SpeedFacts& facts, Sums& sums) {
  add_reason(row, sums);
  if (!is_of_pass(row)) {
    return;
  }
  if (row.kind == "cast") {
    return;  // its phase has them
  }
  sums.rows_of_pass_s += row.time_s;
  facts.unsupported += is_unsupported(row) ? row.time_s : 0;
  if (row.kind != "product") {
    facts.overhead += is_small(row) ? row.time_s : 0;
    return;
  }
  facts.products += row.time_s;
  if (row.in_16_bits) {
    facts.in_16_bits += row.time_s;
    facts.widened += row.reason == "hardware" ? row.time_s : 0;
    sums.memory_bound_s += is_memory_bound(row, rates.narrow_flops, rates) ? row.time_s : 0;
  }
  facts.overhead += is_small(row) ? row.time_s : 0;
}

using Key = std::tuple<std::string, std::string, std::string>;

// What a row is for 16 bits is that of the part with the most time, which comes first.
std::map<Key, OperationRow> by_operation(const TimeSplit& split) {
  record::OperationSums<Key> sums;
  for (const OperationRow& row : split.operations) {
    if (row.kind != "cast") {
      OperationRow& sum = sums.add({row.phase, row.scope, row.operation}, row);
      sum.eligible = sum.eligible || row.eligible;
    }
  }
  return sums.by_key();
}

double predicted_of(const OperationRow& fp32, const OperationRow& narrow, const Rates& rates) {
  if (fp32.kind == "product") {
    const double before = std::max(fp32.flops / rates.fp32_flops, fp32.bytes / rates.copy_bytes);
    const double after =
        std::max(fp32.flops / rates.narrow_flops, fp32.bytes / 2 / rates.copy_bytes);
    return std::isfinite(before) && after > 0 ? before / after : 1;
  }
  const bool is_known = narrow.calls > 0 && fp32.bytes > 0 && narrow.bytes > 0;
  return is_known && fp32.kind == "other" && !is_small(fp32) ? fp32.bytes / narrow.bytes : 1;
}

}  // namespace

std::optional<SpeedFacts> speed_facts(const std::vector<TimeSplit>& splits,
                                      const std::string& precision, const Rates& rates) {
  SpeedFacts facts;
  Sums sums;
  for (const TimeSplit& split : splits) {
    const double replay_s = phase_of(split, "replay");
    sums.step_s += split.step_time_s - replay_s;
    sums.pass_s += phase_of(split, "forward") + phase_of(split, "backward");
    facts.data += phase_of(split, "data");
    facts.casts += phase_of(split, "casts");
    facts.optimizer += phase_of(split, "optimizer");
    for (const OperationRow& row : split.operations) {
      add_row(row, rates, facts, sums);
    }
  }
  if (!(sums.step_s > 0)) {
    return std::nullopt;
  }
  facts.precision = precision;
  facts.step_s = sums.step_s / static_cast<double>(splits.size());
  // What autograd does between its nodes, and what observing a call adds to the one around it.
  facts.overhead += std::max(0.0, sums.pass_s - sums.rows_of_pass_s);
  for (double* share : {&facts.data, &facts.casts, &facts.optimizer, &facts.products,
                        &facts.in_16_bits, &facts.widened, &facts.unsupported, &facts.overhead}) {
    *share /= sums.step_s;
  }
  if (std::isfinite(rates.copy_bytes) && std::isfinite(rates.narrow_flops)) {
    facts.memory_bound = sums.memory_bound_s / sums.step_s;
  }
  for (const auto& [name, share] : sums.reasons) {
    facts.reasons.push_back(share);
    facts.reasons.back().share /= sums.step_s;
  }
  std::stable_sort(facts.reasons.begin(), facts.reasons.end(),
                   [](const ReasonShare& a, const ReasonShare& b) { return a.share > b.share; });
  return facts;
}

std::vector<OperationGain> operation_gains(const TimeSplit& fp32, const TimeSplit& narrow,
                                           const Rates& rates) {
  const std::map<Key, OperationRow> narrow_rows = by_operation(narrow);
  std::vector<OperationGain> gains;
  for (const auto& [key, row] : by_operation(fp32)) {
    OperationGain& gain = gains.emplace_back();
    gain.fp32 = row;
    const auto found = narrow_rows.find(key);
    if (found != narrow_rows.end()) {
      gain.narrow = found->second;
      gain.measured = gain.narrow.time_s > 0 ? row.time_s / gain.narrow.time_s : kNotKnown;
    }
    gain.predicted = predicted_of(row, gain.narrow, rates);
  }
  std::stable_sort(gains.begin(), gains.end(), [](const OperationGain& a, const OperationGain& b) {
    return a.fp32.time_s > b.fp32.time_s;
  });
  return gains;
}

double product_gain(const std::vector<OperationGain>& gains) {
  double fp32_s = 0;
  double narrow_s = 0;
  for (const OperationGain& gain : gains) {
    if (gain.fp32.kind == "product" && gain.narrow.calls > 0) {
      fp32_s += gain.fp32.time_s;
      narrow_s += gain.narrow.time_s;
    }
  }
  return narrow_s > 0 ? fp32_s / narrow_s : kNotKnown;
}

double predicted_gain(const TimeSplit& fp32, const std::vector<OperationGain>& gains) {
  double saved_s = 0;
  for (const OperationGain& gain : gains) {
    saved_s += gain.fp32.time_s * (1 - 1 / gain.predicted);
  }
  return fp32.step_time_s / (fp32.step_time_s - saved_s);
}

}  // namespace mantissa::report
