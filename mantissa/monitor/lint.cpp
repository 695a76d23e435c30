#include "mantissa/monitor/lint.h"

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include <c10/util/Exception.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/monitor/lint_rules.h"

namespace mantissa::monitor {
namespace {

// One line a rule: adding a rule is adding a function and its line here.
const std::vector<RuleEntry>& rule_table() {
  static const std::vector<RuleEntry> table = {
      {{"constant",
        "eps, masks and bounds that become 0 or infinite, or subnormal, in the format of the call",
        "IEEE 754-2019; kernels of LibTorch 2.13; NVIDIA/apex#1052"},
       check_constant},
      {{"position",
        "integers beyond those that a 16-bit format holds (fp16 2048, bf16 256) that become equal",
        "IEEE 754-2019; huggingface/diffusers#13920"},
       check_position},
      {{"domain", "log, exp, division, sqrt and others, infinite or NaN at finite arguments",
        "the functions' domains; pytorch/pytorch#61098 for probabilities of exactly 0 and 1"},
       check_domain},
      {{"overflow", "results beyond a 16-bit format, and gradients not finite, of finite inputs",
        "IEEE 754-2019; huggingface/transformers#5651, #10674; pytorch/pytorch#2421"},
       check_overflow},
      {{"underflow", "casts that make 0 of most numbers; fp16 gradients, most of them subnormal",
        "Micikevicius et al., Mixed Precision Training, 2018, 3.2"},
       check_underflow},
      {{"half-fft", "Fourier transforms of 16-bit tensors",
        "LibTorch 2.13 (native/SpectralOps.cpp); cuFFT documentation, half precision"},
       check_half_fft},
      {{"batch-norm", "running statistics in 16 bits, or not finite",
        "Micikevicius et al., Mixed Precision Training, 2018, 3.3; pytorch/pytorch#88474"},
       check_batch_norm},
      {{"gradient-sum", "gradients of several backward passes that add up in 16 bits",
        "Higham, Accuracy and Stability of Numerical Algorithms, 2002, 4.2"},
       check_gradient_sum},
      {{"repeated-index", "16-bit sums over equal indices (embedding gradients) that lose terms",
        "apache/mxnet#17703; LibTorch 2.13"},
       check_repeated_index},
      {{"index", "indices beyond the table or the classes that they choose from",
        "LibTorch 2.13: an error on CPUs, on GPUs an assertion that stops the device"},
       check_index},
      {{"loss", "losses computed in 16 bits",
        "Micikevicius et al., Mixed Precision Training, 2018, 3.3; huggingface/transformers#10674"},
       check_loss},
      {{"lost-update", "in-place updates of 16-bit parameters and averages that change nothing",
        "Micikevicius et al., Mixed Precision Training, 2018, 3.1; meta-pytorch/torchtune#2254"},
       check_lost_update},
      {{"tensor-core-size", "sizes of 16-bit products that are no multiples of 8; speed alone",
        "NVIDIA, Matrix Multiplication Background User's Guide"},
       check_tensor_core_size},
  };
  return table;
}

class Collector {
 public:
  Collector(const LintOptions& options, LintReport& report) : options_(options), report_(report) {}

  void visit(const TracedCall& call) {
    const auto silenced = silenced_.extract(&call);
    if (call.is_recast) {
      return;
    }
    report_.calls += call.operation ? 1 : 0;
    for (const RuleEntry& rule : rule_table()) {
      if (!silenced.empty() && silenced.mapped().contains(rule.about.name)) {
        continue;  // said of a call that this one made
      }
      for (const Hit& hit : rule.check(call, options_)) {
        add(rule.about.name, call, hit);
        for (const TracedCall* outer = call.outer; outer != nullptr; outer = outer->outer) {
          silenced_[outer].insert(rule.about.name);
        }
      }
    }
  }

 private:
  void add(const std::string& rule, const TracedCall& call, const Hit& hit) {
    Finding finding{rule,
                    hit.severity,
                    hit.scope.empty() ? call.scope : hit.scope,
                    blamed_name(call),
                    hit.format,
                    hit.value,
                    hit.consequence,
                    hit.remedy,
                    1,
                    hit.of_values};
    const auto key = std::make_tuple(rule, hit.severity, finding.operation, finding.format,
                                     hit.of_values ? std::string() : finding.value);
    const auto [found, is_new] = index_.emplace(key, report_.findings.size());
    if (is_new) {
      report_.findings.push_back(std::move(finding));
    } else {
      ++report_.findings[found->second].count;
    }
  }

  const LintOptions& options_;
  LintReport& report_;
  std::unordered_map<const TracedCall*, std::set<std::string>> silenced_;
  std::map<std::tuple<std::string, Severity, std::string, std::string, std::string>, size_t> index_;
};

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// What ended the step early, when a finding may be why.
std::string run(const std::function<void()>& step, const LintReport& report) {
  try {
    step();
  } catch (const std::exception& error) {
    if (report.findings.empty()) {
      throw;
    }
    const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
    return first_line(of_torch != nullptr ? of_torch->what_without_backtrace() : error.what());
  }
  return {};
}

}  // namespace

std::string_view to_string(Severity severity) {
  return severity == Severity::hazard ? "hazard" : "note";
}

int64_t LintReport::num(Severity severity) const {
  return std::count_if(findings.begin(), findings.end(),
                       [&](const Finding& finding) { return finding.severity == severity; });
}

std::vector<LintRule> lint_rules() {
  std::vector<LintRule> rules;
  for (const RuleEntry& entry : rule_table()) {
    rules.push_back(entry.about);
  }
  return rules;
}

LintReport lint(const std::function<void()>& step, const LintOptions& options) {
  LintReport report;
  Collector collector(options, report);
  trace_calls([&] { report.stopped = run(step, report); },
              [&](const TracedCall& call) { collector.visit(call); });
  std::stable_sort(report.findings.begin(), report.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
  return report;
}

std::string to_string(const Finding& finding) {
  std::string where = finding.scope.empty() ? "" : concat(" at ", finding.scope);
  if (finding.count > 1) {
    where += concat(finding.scope.empty() ? " in " : " and ",
                    finding.scope.empty() ? finding.count : finding.count - 1,
                    finding.scope.empty() ? " places" : " more");
  }
  return concat(to_string(finding.severity), " ", finding.rule, ": ", finding.operation, " in ",
                finding.format, where, finding.value.empty() ? "" : concat(": ", finding.value),
                "\n  ", finding.consequence, finding.of_values ? " (in this step)" : "", "\n  -> ",
                finding.remedy);
}

}  // namespace mantissa::monitor
