#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/amp/policy.h"
#include "mantissa/base/api.h"
#include "mantissa/monitor/operation_times.h"
#include "mantissa/ops/install_cpu_kernels.h"

namespace mantissa::train {

/// What 16 bits did for an operation of a run.
struct FormatReason {
  bool eligible = false;    // 16 bits can do its work: products, convolutions, attention, and what
                            // its policy runs in 16 bits
  bool in_16_bits = false;  // its arguments were of 16 bits
  std::string reason;       // why they gave it no speed of 16-bit units; empty: they can have
  std::string detail;       // one line
};

/// Who computes in 16 bits here: as ops::cpu_kernel_choices says of each kind of work.
struct KernelChoices {
  std::vector<ops::CpuKernelChoice> products;
  std::vector<ops::CpuKernelChoice> attention;
};

/// What holds in this process.
MANTISSA_API KernelChoices kernel_choices();

/// Reasons, in records:
///   precision  the run is in FP32 or TF32
///   policy     the policy keeps the operation in another format; the detail names its rule
///   kernel     no kernel has the units do it: Fourier transforms, arguments in double, attention
///   on
///              CPUs
///   shape      on a GPU, a side of a product is no multiple of 8
///   hardware   the processor has no units for the format: products widen their factors to FP32
///   kind       not a product: 16 bits can halve its bytes at most
///   cast       is there because of 16 bits
class MANTISSA_API FormatReasons {
 public:
  explicit FormatReasons(amp::Policy policy, KernelChoices kernels = kernel_choices());

  FormatReason of(const monitor::OperationTime& row) const;

 private:
  struct Rule {
    amp::Rule rule = amp::Rule::keep;
    std::string operation;  // that has it
    std::string source;     // of the rule; of keep that it is not listed
  };

  Rule rule_of(const monitor::OperationTime& row) const;
  std::string policy_detail(const monitor::OperationTime& row, const Rule& rule) const;
  FormatReason of_product(const monitor::OperationTime& row) const;

  amp::Policy policy_;
  KernelChoices kernels_;
  std::map<std::string, amp::ResolvedRule> rules_;
  std::vector<amp::ScopedRule> scoped_;
};

}  // namespace mantissa::train
