#include "mantissa/train/time_split_record.h"

#include <algorithm>
#include <cctype>
#include <tuple>
#include <utility>

#include "mantissa/record/operation_sums.h"

namespace mantissa::train {
namespace {

using monitor::OperationKind;
using monitor::Phase;
using record::OperationRow;

// `blocks.*.mlp` of `blocks.3.mlp`.
std::string without_numbers(const std::string& scope) {
  std::string result;
  for (size_t begin = 0; begin < scope.size();) {
    const size_t end = std::min(scope.find('.', begin), scope.size());
    const std::string part = scope.substr(begin, end - begin);
    const bool is_number = !part.empty() && std::all_of(part.begin(), part.end(), [](char letter) {
      return std::isdigit(static_cast<unsigned char>(letter)) != 0;
    });
    result += (begin == 0 ? "" : ".") + (is_number ? "*" : part);
    begin = end + 1;
  }
  return result;
}

OperationRow row_of(const monitor::OperationTime& from, const FormatReasons& reasons) {
  FormatReason reason = reasons.of(from);
  OperationRow row;
  row.phase = to_string(from.phase);
  row.scope = without_numbers(from.scope);
  row.operation = from.operation;
  row.kind = to_string(from.kind);
  row.format = from.format;
  row.calls = from.calls;
  row.time_s = from.time_s;
  row.flops = from.flops;
  row.bytes = from.bytes;
  row.eligible = reason.eligible;
  row.in_16_bits = reason.in_16_bits;
  row.reason = std::move(reason.reason);
  row.detail = std::move(reason.detail);
  return row;
}

using Key = std::tuple<std::string, std::string, std::string, std::string, std::string, bool, bool,
                       std::string, std::string>;

Key key_of(const OperationRow& row) {
  return {row.phase,    row.scope,      row.operation, row.kind,  row.format,
          row.eligible, row.in_16_bits, row.reason,    row.detail};
}

void add(const OperationRow& row, record::OperationSums<Key>& table) {
  table.add(key_of(row), row);
}

OperationRow as_one_of_others(const OperationRow& row) {
  OperationRow others;
  others.phase = row.phase;
  others.operation = "others";
  others.kind = to_string(OperationKind::other);
  others.calls = row.calls;
  others.time_s = row.time_s;
  others.bytes = row.bytes;
  others.reason = "kind";
  return others;
}

}  // namespace

std::map<std::string, double> phases_of(const monitor::TimeSplit& split) {
  std::map<std::string, double> phases;
  for (const Phase phase : monitor::kPhases) {
    const double seconds = split.seconds(phase);
    if (phase != Phase::replay || seconds > 0) {
      phases[std::string(to_string(phase))] = seconds;
    }
  }
  return phases;
}

double total_of(const std::map<std::string, double>& phases) {
  double sum = 0;
  for (const auto& [phase, seconds] : phases) {
    sum += seconds;
  }
  return sum;
}

record::TimeSplit time_split_event(int64_t step, std::map<std::string, double> phases,
                                   const monitor::OperationTimes& times,
                                   const std::vector<monitor::OperationTime>& rows,
                                   const FormatReasons& reasons) {
  record::TimeSplit event;
  event.step = step;
  for (const Phase phase : monitor::kPhases) {
    const auto found = phases.find(std::string(to_string(phase)));
    if (found != phases.end()) {
      found->second -= times.look_s(phase);
      event.look_s += times.look_s(phase);
    }
  }
  record::OperationSums<Key> table;
  phases["casts"] = 0;
  for (const monitor::OperationTime& row : rows) {
    if (row.phase == Phase::replay) {
      continue;
    }
    if (row.kind == OperationKind::cast) {
      phases[std::string(to_string(row.phase))] -= row.time_s;
      phases["casts"] += row.time_s;
    }
    add(row_of(row, reasons), table);
  }
  event.step_time_s = total_of(phases);
  event.operations = table.by_time();
  event.phases = std::move(phases);
  return event;
}

record::TimeSplit with_small_rows_together(record::TimeSplit split) {
  constexpr double kSmall = 1e-3;
  record::OperationSums<Key> table;
  for (const OperationRow& row : split.operations) {
    const bool is_kept = row.eligible || row.kind == to_string(OperationKind::cast) ||
                         row.time_s >= kSmall * split.step_time_s;
    add(is_kept ? row : as_one_of_others(row), table);
  }
  split.operations = table.by_time();
  return split;
}

}  // namespace mantissa::train
