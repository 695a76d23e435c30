#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::monitor {

/// hazard: results differ from those of FP32 by more than rounding, are not finite, or the step
/// cannot run.
/// note: results are the same, or differ by rounding alone.
enum class Severity : uint8_t { hazard, note };

MANTISSA_API std::string_view to_string(Severity severity);

/// One kind of precision hazard, in one place or in many alike.
struct Finding {
  std::string rule;  // a name of lint_rules()
  Severity severity = Severity::hazard;
  std::string scope;      // path of the first place; empty outside of any tensor::Scope
  std::string operation;  // that was called there: `aten::add`, or `MmBackward0` in backward
  std::string format;     // in which it runs: `fp16`
  std::string value;      // the constant, the size, or the number that was met
  std::string consequence;
  std::string remedy;
  int64_t count = 1;       // places alike
  bool of_values = false;  // seen in the numbers of this step; another batch may show others
};

struct LintRule {
  std::string name;
  std::string checks;  // one line
  std::string source;  // of the fact it stands on
};

struct LintOptions {
  tensor::ParameterList parameters;  // names findings about their gradients
};

struct LintReport {
  std::vector<Finding> findings;  // hazards first, each kind in the order of the step
  int64_t calls = 0;              // of operations that were looked at
  std::string stopped;            // why the step ended early; empty when it ran through

  MANTISSA_API int64_t num(Severity severity) const;
};

/// All rules, in the order in which they are checked.
MANTISSA_API std::vector<LintRule> lint_rules();

/// Runs `step` once, a forward pass with or without a backward pass and an update, and checks each
/// call that it makes against every rule. Formats are those in which the kernels run, so autocast
/// regions and casts of the model's own are seen as they act. The step computes what it does
/// without lint. A step that throws after a finding is reported as `stopped`, because the finding
/// is likely to be why; one that throws before any rethrows. Waits for the device at every call:
/// for one step, not for training. Throws what trace_calls throws.
///
///     const auto report = monitor::lint([&] { loss(model, batch).backward(); },
///                                       {.parameters = model.parameters()});
///     for (const monitor::Finding& finding : report.findings) {
///       std::cout << to_string(finding) << "\n";
///     }
MANTISSA_API LintReport lint(const std::function<void()>& step, const LintOptions& options = {});

/// Three lines: where and what; what follows from it; what to do.
MANTISSA_API std::string to_string(const Finding& finding);

}  // namespace mantissa::monitor
