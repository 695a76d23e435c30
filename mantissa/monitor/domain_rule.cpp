#include <algorithm>
#include <array>

#include <ATen/TensorOperators.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/monitor/lint_rules.h"

namespace mantissa::monitor {
namespace {

// Functions with values that are not finite at finite arguments, and what keeps them finite.
struct Domain {
  std::string_view operation;
  std::string_view remedy;
};

constexpr std::string_view kClampIntoDomain = "clamp the argument into the domain first";
constexpr std::array kDomains = {
    Domain{"log", "take log_softmax or logsigmoid of the logits, or clamp the argument first"},
    Domain{"log2", "clamp the argument first, in fp32"},
    Domain{"log10", "clamp the argument first, in fp32"},
    Domain{"log1p", kClampIntoDomain},
    Domain{"exp", "subtract the largest argument first (softmax, logsumexp), or run it in fp32"},
    Domain{"exp2", "subtract the largest argument first, or run it in fp32"},
    Domain{"expm1", "run it in fp32, or bound the argument"},
    Domain{"sqrt", kClampIntoDomain},
    Domain{"rsqrt", "add an eps that the format holds, in fp32"},
    Domain{"reciprocal", "keep the divisor away from 0 by a number that the format holds"},
    Domain{"acos", kClampIntoDomain},
    Domain{"acosh", kClampIntoDomain},
    Domain{"asin", kClampIntoDomain},
    Domain{"atanh", kClampIntoDomain},
    Domain{"logit", "give it an eps, in fp32"},
    Domain{"erfinv", kClampIntoDomain},
    Domain{"sinh", "run it in fp32, or bound the argument"},
    Domain{"cosh", "run it in fp32, or bound the argument"},
    Domain{"div",
           "keep the divisor away from 0 by a number that the format holds, or divide in "
           "fp32"},
    Domain{"pow", "run it in fp32, or bound the base"},
};

const Domain* find_domain(std::string_view operation) {
  const auto found = std::find_if(kDomains.begin(), kDomains.end(), [&](const Domain& domain) {
    return domain.operation == operation;
  });
  return found == kDomains.end() ? nullptr : &*found;
}

// The operand that decides: the divisor, else the first.
at::Tensor deciding_argument(const TracedCall& call, std::string_view operation) {
  return tensor_argument(call, operation == "div" ? "other" : "self");
}

Hits check_function(const TracedCall& call, const Domain& domain) {
  const at::Tensor y = result(call);
  if (!holds_reals(y)) {
    return {};
  }
  at::Tensor bad = y.isfinite().logical_not();
  if (!has_any(bad)) {
    return {};
  }
  for (const at::Tensor& input : tensors_in(call.inputs)) {
    if (holds_reals(input)) {
      bad = bad.logical_and(input.isfinite());
    }
  }
  const int64_t num_bad = num_true(bad);
  if (num_bad == 0) {
    return {};
  }
  const at::Tensor x = deciding_argument(call, domain.operation);
  std::string met;
  if (holds_reals(x)) {
    met = text(x.expand_as(bad).masked_select(bad)[0].item<double>());
  } else if (const c10::IValue* divisor = argument(call, "other");
             divisor != nullptr && divisor->isScalar()) {
    met = text(divisor->toScalar().toDouble());
  }
  const std::string became = text(y.masked_select(bad)[0].item<double>());
  return {{.format = format_name(y),
           .value = met,
           .consequence = concat(domain.operation, domain.operation == "div" ? " by " : " of ", met,
                                 " is ", became, ": ", num_bad, " of ", y.numel(), " results"),
           .remedy = std::string(domain.remedy),
           .of_values = true}};
}

// The gradient of sigmoid is 0 where it is 1, and LibTorch bounds the logarithm by -100.
Hits check_saturated_probability(const TracedCall& call) {
  const at::Tensor p = tensor_argument(call, "self");
  if (!holds_reals(p)) {
    return {};
  }
  const int64_t saturated = num_true((p == 0).logical_or(p == 1));
  if (saturated == 0) {
    return {};
  }
  return {{.format = format_name(p),
           .value = "0 or 1",
           .consequence = concat(saturated, " of ", p.numel(),
                                 " probabilities are exactly 0 or 1: their logarithm is bounded by "
                                 "-100 and their gradient lost"),
           .remedy = "use binary_cross_entropy_with_logits",
           .of_values = true}};
}

}  // namespace

bool has_domain(std::string_view operation) { return find_domain(operation) != nullptr; }

Hits check_domain(const TracedCall& call, const LintOptions& /*options*/) {
  if (call.in_backward) {
    return {};  // a division by 0 may be masked afterwards; check_overflow sees what remains
  }
  const std::string name = base_name(call);
  if (name == "binary_cross_entropy") {
    return check_saturated_probability(call);
  }
  const Domain* domain = find_domain(name);
  return domain == nullptr ? Hits() : check_function(call, *domain);
}

}  // namespace mantissa::monitor
