#include "mantissa/report/speed_verdict.h"

#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/report/quantity.h"

namespace mantissa::report {
namespace {

constexpr double kGain = 1.1;
constexpr double kOfPredicted = 0.8;
constexpr double kData = 1.0 / 4;
constexpr double kCasts = 1.0 / 6;
constexpr double kOverhead = 1.0 / 3;
constexpr double kUnsupported = 1.0 / 4;
constexpr double kProducts = 1.0 / 4;
constexpr double kSlower = 0.9;  // beyond what two measurements differ by
constexpr double kMost = 1.0 / 2;

std::string percent(double share) { return decimal_text(100 * share, 0) + " %"; }

std::string times(double gain) { return decimal_text(gain, 2) + " times as fast as fp32"; }

bool is_as_expected(const SpeedFacts& facts) {
  return facts.measured && facts.measured->value >= kGain &&
         !(facts.measured->value < kOfPredicted * facts.predicted);
}

// Of the reasons for which work has no 16-bit units, the one that takes most.
const ReasonShare* unsupported_reason(const SpeedFacts& facts) {
  for (const ReasonShare& reason : facts.reasons) {
    if (reason.reason == "policy" || reason.reason == "kernel" || reason.reason == "shape") {
      return &reason;
    }
  }
  return nullptr;
}

SpeedAnswer as_expected(const SpeedFacts& facts) {
  const bool is_predicted = std::isfinite(facts.predicted);
  return {
      SpeedVerdict::as_expected,
      concat(facts.precision, " is ", times(facts.measured->value),
             is_predicted ? concat(", where ", decimal_text(facts.predicted, 2),
                                   " was predicted without casts")
                          : ""),
      concat("nothing: ", percent(facts.products), " of a step is products, ", percent(facts.casts),
             " casts, ", percent(facts.optimizer), " the optimizer, which is FP32 in both")};
}

SpeedAnswer input_bound(const SpeedFacts& facts) {
  return {SpeedVerdict::input_bound, concat(percent(facts.data), " of a step waits for data"),
          "load faster first, with more data.threads and data.prefetch; no format makes a wait "
          "shorter"};
}

SpeedAnswer cast_bound(const SpeedFacts& facts) {
  return {SpeedVerdict::cast_bound,
          concat(percent(facts.casts), " of a step is casts between fp32 and ", facts.precision,
                 ", ", percent(facts.products), " products"),
          concat("give each cast more products: longer sequences or a larger microbatch; or cast "
                 "less: precision.policy lean, or precision.param ",
                 facts.precision)};
}

SpeedAnswer too_small(const SpeedFacts& facts) {
  return {SpeedVerdict::too_small,
          concat(percent(facts.overhead), " of a step is calls of less than ",
                 seconds_text(kSmallCall_s), " and what is between them"),
          "make operations larger: a larger microbatch, longer sequences, a wider model; a format "
          "changes what an operation computes, not what it costs to call it"};
}

SpeedAnswer no_units(const SpeedFacts& facts) {
  std::string detail;
  for (const ReasonShare& reason : facts.reasons) {
    detail = reason.reason == "hardware" ? reason.detail : detail;
  }
  return {SpeedVerdict::no_units,
          concat(percent(facts.widened), " of a step is products in ", facts.precision,
                 " that are computed by FP32 units", detail.empty() ? "" : ": ", detail),
          concat("use ", facts.precision,
                 " here for its memory; speed needs a processor with units for it (mantissa "
                 "doctor)")};
}

SpeedAnswer slow_kernels(const SpeedFacts& facts) {
  return {
      SpeedVerdict::slow_kernels,
      concat(percent(facts.products), " of a step is products, and in ", facts.precision,
             " they are ", times(facts.product_gain), ": the kernels are slow for these shapes"),
      "give products more rows, by a larger microbatch or longer sequences; the rows of the "
      "table with a measured gain below 1 are the ones to keep in fp32"};
}

SpeedAnswer unsupported(const SpeedFacts& facts) {
  const ReasonShare* reason = unsupported_reason(facts);
  return {
      SpeedVerdict::unsupported,
      concat(percent(facts.unsupported), " of a step is work that did not get the units of ",
             facts.precision,
             reason == nullptr ? ""
                               : concat(", most by ", reason->operation, " (", reason->reason,
                                        reason->detail.empty() ? "" : ": ", reason->detail, ")")),
      reason != nullptr && reason->reason == "policy"
          ? "list it as lower in the policy, if its range allows (mantissa policy explain, "
            "mantissa inspect)"
      : reason != nullptr && reason->reason == "shape"
          ? "pad the sides of products to multiples of 8"
          : "use an operation that has a kernel for these units, if there is one"};
}

SpeedAnswer memory_bound(const SpeedFacts& facts) {
  return {SpeedVerdict::memory_bound,
          concat(percent(facts.memory_bound),
                 " of a step is products whose bytes take longer than their arithmetic"),
          "let each product use its factors more often: a larger microbatch or longer sequences; "
          "16 bits halve bytes, and gain no more than that"};
}

SpeedAnswer few_products(const SpeedFacts& facts) {
  const auto share_of = [&](std::string_view name) -> double {
    for (const ReasonShare& reason : facts.reasons) {
      if (reason.reason == name) {
        return reason.share;
      }
    }
    return 0;
  };
  return {SpeedVerdict::few_products,
          concat("products are ", percent(facts.products), " of a step; ",
                 percent(share_of("kind") + share_of("kernel")),
                 " are operations that 16-bit units do not compute, ", percent(facts.optimizer),
                 " the optimizer"),
          "a larger microbatch makes the optimizer a smaller part, precision.policy lean lets "
          "norms and activations read and write 16 bits"};
}

SpeedAnswer unclear(const SpeedFacts& facts) {
  return {
      SpeedVerdict::unclear,
      concat("no single cause: of a step ", percent(facts.products), " is products, ",
             percent(facts.casts), " casts, ", percent(facts.data), " wait for data, ",
             percent(facts.optimizer), " the optimizer, ", percent(facts.overhead), " small calls"),
      "look at the operations that gained least"};
}

}  // namespace

std::string_view to_string(SpeedVerdict verdict) {
  switch (verdict) {
    case SpeedVerdict::as_expected:
      return "as fast as can be expected";
    case SpeedVerdict::input_bound:
      return "input-bound";
    case SpeedVerdict::cast_bound:
      return "cast-bound";
    case SpeedVerdict::too_small:
      return "too small";
    case SpeedVerdict::no_units:
      return "hardware without 16-bit units";
    case SpeedVerdict::slow_kernels:
      return "slow kernels";
    case SpeedVerdict::unsupported:
      return "unsupported operators";
    case SpeedVerdict::memory_bound:
      return "memory-bound";
    case SpeedVerdict::few_products:
      return "few products";
    case SpeedVerdict::unclear:
      return "unclear";
  }
  MANTISSA_ASSERT(false);
}

SpeedAnswer judge_speed(const SpeedFacts& facts) {
  if (is_as_expected(facts)) {
    return as_expected(facts);
  }
  if (facts.data >= kData) {
    return input_bound(facts);
  }
  if (facts.casts >= kCasts) {
    return cast_bound(facts);
  }
  if (facts.overhead >= kOverhead) {
    return too_small(facts);
  }
  if (facts.in_16_bits > 0 && facts.widened >= kMost * facts.in_16_bits) {
    return no_units(facts);
  }
  if (facts.products >= kProducts && facts.product_gain < kSlower) {
    return slow_kernels(facts);
  }
  if (facts.unsupported >= kUnsupported) {
    return unsupported(facts);
  }
  if (facts.in_16_bits > 0 && facts.memory_bound >= kMost * facts.in_16_bits) {
    return memory_bound(facts);
  }
  return facts.products < kMost ? few_products(facts) : unclear(facts);
}

std::string to_string(const SpeedAnswer& answer) {
  return concat(to_string(answer.verdict), ": ", answer.why, "; ", answer.advice);
}

}  // namespace mantissa::report
