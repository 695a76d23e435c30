#pragma once

#include <string>
#include <vector>

namespace mantissa::nan_benchmark {

/// What is expected of a case, and why: one entry of truth.json, which docs/nan-benchmark.md
/// describes. It is written from the arithmetic of the case, never from what a tool said.
struct Truth {
  std::string name;
  std::string kind;
  std::string policy;     // under which the step fails
  double scale = 1;       // of the loss
  std::string finding;    // nonfinite, given, scale, or a rule of lint
  std::string pass;       // forward, backward, update
  std::string operation;  // as called: `aten::linear`; in the backward pass the node
  bool is_cast = false;   // not its result but the cast of an operand
  std::string scope;
  bool is_hidden = false;         // the step is finite all the same, and wrong
  std::vector<std::string> cure;  // any of keep, bf16, scale; empty: nothing of these
  std::vector<std::string> keep;  // operations, the least number of them
  std::string why;
  std::string source;  // the public report, if there is one

  bool is_curable_by(const std::string& way) const;
};

/// Throws IoError or Corruption, naming the file and the case.
std::vector<Truth> read_truths(const std::string& path);

}  // namespace mantissa::nan_benchmark
