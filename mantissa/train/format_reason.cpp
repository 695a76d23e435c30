#include "mantissa/train/format_reason.h"

#include <optional>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::train {
namespace {

using monitor::OperationKind;
using monitor::OperationTime;
using numerics::Format;

bool is_16_bits(std::string_view format) { return format == "bf16" || format == "fp16"; }

bool is_16_bits(Format format) { return format == Format::bf16 || format == Format::fp16; }

// `aten::softmax.int` is an overload of `aten::softmax`.
bool names(std::string_view key, std::string_view operation) {
  return key.starts_with(operation) &&
         (key.size() == operation.size() || key[operation.size()] == '.');
}

// Of transforms LibTorch has 16-bit kernels on GPUs alone, for powers of two; ours are FP32.
bool is_transform(std::string_view operation) {
  return operation.starts_with("aten::_fft") || operation.starts_with("aten::fft_") ||
         operation.starts_with("mantissa::long_convolution") ||
         operation.starts_with("LongConvolution");
}

bool is_attention(std::string_view operation) {
  return operation.find("scaled_dot_product") != std::string_view::npos;
}

// Where products in `format` are widened to FP32 units, that choice.
const ops::CpuKernelChoice* widened(const std::vector<ops::CpuKernelChoice>& choices,
                                    std::string_view format) {
  for (const ops::CpuKernelChoice& choice : choices) {
    if (numerics::to_string(choice.format) == format && choice.kernels == ops::CpuKernels::ours) {
      return &choice;
    }
  }
  return nullptr;
}

}  // namespace

KernelChoices kernel_choices() {
  return {ops::cpu_kernel_choices(ops::CpuWork::products),
          ops::cpu_kernel_choices(ops::CpuWork::attention)};
}

FormatReasons::FormatReasons(amp::Policy policy, KernelChoices kernels)
    : policy_(std::move(policy)),
      kernels_(std::move(kernels)),
      rules_(amp::resolved_rules(policy_)),
      scoped_(amp::scoped_rules(policy_)) {}

FormatReasons::Rule FormatReasons::rule_of(const OperationTime& row) const {
  const auto find = [&](const std::string& operation) -> std::optional<Rule> {
    std::optional<Rule> found;
    for (auto rule = rules_.lower_bound(operation);
         rule != rules_.end() && rule->first.starts_with(operation) && !found; ++rule) {
      if (names(rule->first, operation)) {
        found = Rule{rule->second.rule, operation, rule->second.source};
      }
    }
    for (const amp::ScopedRule& scoped : scoped_) {
      if (names(scoped.operation, operation) && amp::covers(scoped.glob, row.scope)) {
        found = Rule{scoped.resolved.rule, operation, scoped.resolved.source};
      }
    }
    return found;
  };
  // A region decides when an operation is called; what that calls follows.
  for (const std::string& operation : {row.within, row.operation}) {
    if (!operation.empty()) {
      if (auto rule = find(operation)) {
        return *rule;
      }
    }
  }
  const std::string& called = row.within.empty() ? row.operation : row.within;
  return {amp::Rule::keep, called, concat(called, " is not listed in ", policy_.base)};
}

std::string FormatReasons::policy_detail(const OperationTime& row, const Rule& rule) const {
  if (row.phase != monitor::Phase::forward && row.phase != monitor::Phase::backward) {
    return "outside of the autocast region";
  }
  const Format compute = amp::compute_format(policy_, row.scope);
  if (!is_16_bits(compute)) {
    return concat("its scope is in ", numerics::to_string(compute));
  }
  if (rule.rule == amp::Rule::keep) {
    return rule.source;
  }
  return concat("rule ", amp::to_string(rule.rule), " of ", rule.operation, ", by ", rule.source);
}

FormatReason FormatReasons::of_product(const OperationTime& row) const {
  FormatReason result{.eligible = true, .in_16_bits = is_16_bits(row.format)};
  if (!result.in_16_bits) {
    if (row.format.find("fp64") != std::string::npos) {
      result.reason = "kernel";
      result.detail = "its arguments are in double, which no rule casts";
    } else if (!is_16_bits(policy_.compute)) {
      result.reason = "precision";
      result.detail = concat("the run computes in ", numerics::to_string(policy_.compute));
    } else {
      result.reason = "policy";
      result.detail = policy_detail(row, rule_of(row));
    }
    return result;
  }
  if (row.on_cpu) {
    if (const auto* choice = widened(kernels_.products, row.format)) {
      result.reason = "hardware";
      result.detail = choice->reason;
    } else if (is_attention(row.operation)) {
      if (const auto* own = widened(kernels_.attention, row.format)) {
        result.reason = "kernel";
        result.detail = own->reason;
      }
    }
  } else if (!row.is_aligned) {
    result.reason = "shape";
    result.detail = "a side is no multiple of 8";
  }
  return result;
}

FormatReason FormatReasons::of(const OperationTime& row) const {
  if (row.kind == OperationKind::product) {
    return of_product(row);
  }
  if (is_transform(row.operation)) {
    return {false, false, "kernel", "a Fourier transform computes in FP32"};
  }
  FormatReason result{.in_16_bits = is_16_bits(row.format)};
  if (row.kind == OperationKind::cast) {
    result.reason = "cast";
  } else if (row.kind == OperationKind::other) {
    result.eligible = result.in_16_bits && row.operation != "autocast";
    result.reason = result.in_16_bits ? "" : "kind";
  }
  return result;
}

}  // namespace mantissa::train
