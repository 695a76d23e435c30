#pragma once

// For tests: steps that were timed by operation, made up.

#include <string>

#include "mantissa/record/event.h"

namespace mantissa::report {

inline record::OperationRow operation_row(const std::string& phase, const std::string& operation,
                                          const std::string& kind, double time_s,
                                          const std::string& format = "bf16") {
  record::OperationRow row;
  row.phase = phase;
  row.scope = "blocks.*.mlp";
  row.operation = operation;
  row.kind = kind;
  row.format = format;
  row.calls = 4;
  row.time_s = time_s;
  row.flops = kind == "product" ? 1e9 : 0;
  row.bytes = format == "bf16" ? 2e6 : 4e6;
  row.eligible = kind == "product";
  row.in_16_bits = format == "bf16";
  row.reason = kind == "cast"      ? "cast"
               : row.in_16_bits    ? ""
               : kind == "product" ? "policy"
                                   : "kind";
  return row;
}

// A step of one second in BF16: half of it products, a twentieth casts.
inline record::TimeSplit narrow_split() {
  record::TimeSplit split;
  split.step = 50;
  split.step_time_s = 1;
  split.phases = {{"data", 0},           {"forward", 0.25}, {"backward", 0.5},
                  {"optimizer", 0.1875}, {"other", 0},      {"casts", 0.0625}};
  split.operations = {operation_row("backward", "aten::mm", "product", 0.375),
                      operation_row("forward", "aten::mm", "product", 0.125),
                      operation_row("backward", "GeluBackward", "other", 0.125, "fp32"),
                      operation_row("forward", "mantissa::layer_norm", "other", 0.125, "fp32"),
                      operation_row("forward", "aten::_to_copy", "cast", 0.0625, "fp32")};
  return split;
}

// The same in FP32, whose products take twice as long.
inline record::TimeSplit fp32_split() {
  record::TimeSplit split = narrow_split();
  split.step_time_s = 1.4375;
  split.phases = {{"data", 0},           {"forward", 0.375}, {"backward", 0.875},
                  {"optimizer", 0.1875}, {"other", 0},       {"casts", 0}};
  split.operations.pop_back();
  for (record::OperationRow& row : split.operations) {
    row.format = "fp32";
    row.bytes = 4e6;
    row.in_16_bits = false;
    if (row.kind == "product") {
      row.time_s *= 2;
      row.reason = "precision";
    }
  }
  return split;
}

}  // namespace mantissa::report
