#include "mantissa/amp/explanation.h"

#include <algorithm>
#include <array>
#include <set>

#include "mantissa/amp/operations.h"
#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"

namespace mantissa::amp {
namespace {

using numerics::Format;

const std::vector<std::string>& valid_formats() {
  static const std::vector<std::string> formats = {"fp32", "bf16", "fp16", "fp64", "int"};
  return formats;
}

bool eligible(std::string_view format) { return format != "fp64" && format != "int"; }

// The format that stores what is computed in `format`.
std::string stored(Format format) {
  return std::string(numerics::to_string(format == Format::tf32 ? Format::fp32 : format));
}

std::vector<std::string> tensor_arguments(const c10::FunctionSchema& schema) {
  std::vector<std::string> names;
  for (const c10::Argument& argument : schema.arguments()) {
    if (holds_tensors(argument.type())) {
      names.push_back(argument.name());
    }
  }
  return names;
}

// The widest of the formats that rules look at; FP32 for BF16 with FP16.
std::string widest(const std::vector<std::string>& formats, const std::string& compute) {
  std::set<std::string> seen;
  for (const std::string& format : formats) {
    if (eligible(format)) {
      seen.insert(format);
    }
  }
  return seen.empty() ? compute : seen.size() == 1 ? *seen.begin() : "fp32";
}

// Made of other operations in every case, which the region sees one by one.
bool is_composite(const c10::OperatorHandle& operation) {
  return operation.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

void cast_all(Explanation& result, const std::string& format) {
  for (ArgumentCast& argument : result.arguments) {
    if (eligible(argument.from)) {
      argument.to = format;
    }
  }
  result.outcome = concat("runs in ", format);
}

// Do the floating arguments differ in format after the casts?
bool is_mixed(const Explanation& explanation) {
  std::set<std::string> formats;
  for (const ArgumentCast& argument : explanation.arguments) {
    if (argument.to != "int") {
      formats.insert(argument.to);
    }
  }
  return formats.size() > 1;
}

// Returns whether the call is made at all.
bool apply(Explanation& result, const Policy& policy, const std::vector<std::string>& formats,
           const std::string& compute) {
  switch (result.rule) {
    case Rule::lower:
      cast_all(result, compute);
      return true;
    case Rule::fp32:
      cast_all(result, "fp32");
      return true;
    case Rule::widest: {
      const bool has_foreign =
          std::any_of(formats.begin(), formats.end(), [&](const std::string& format) {
            return eligible(format) && format != compute && format != "fp32";
          });
      if (has_foreign && !policy.fixes.contains(Fix::foreign)) {
        result.outcome = concat("throws, because a 16-bit format is not that of the region, ",
                                compute, "; foreign=widen allows it");
        return false;
      }
      cast_all(result, widest(formats, compute));
      return true;
    }
    case Rule::to_self:
      if (!formats.empty() && eligible(formats[0])) {
        cast_all(result, formats[0]);
      } else {
        result.outcome = "runs in what arrives";
      }
      return true;
    case Rule::fp32_output:
      result.outcome = "reads what arrives, sums in and returns fp32";
      return true;
    case Rule::lower_output:
      result.outcome = concat("runs in what arrives, a result of fp32 is cast to ", compute);
      return true;
    case Rule::banned:
      result.outcome = "throws";
      return false;
    case Rule::keep:
      result.outcome = "runs in what arrives";
      return true;
  }
  MANTISSA_ASSERT(false);
}

}  // namespace

std::vector<Explanation> explain(const Policy& policy, std::string_view operation,
                                 const std::vector<std::string>& formats, std::string_view scope) {
  for (const std::string& format : formats) {
    const auto& valid = valid_formats();
    MANTISSA_CHECK(std::find(valid.begin(), valid.end(), format) != valid.end(), InvalidArgument,
                   "explain: unknown format \"", format, "\"; valid: fp32 bf16 fp16 fp64 int");
  }
  const OperationIndex operations;
  const std::map<std::string, ResolvedRule> rules = resolved_rules(policy, scope);
  const std::string compute = stored(compute_format(policy, scope));
  std::vector<Explanation> result;
  for (const c10::OperatorHandle& overload : operations.find(operation, Rule::keep, "explain")) {
    const std::vector<std::string> names = tensor_arguments(overload.schema());
    if (names.size() < formats.size()) {
      continue;
    }
    Explanation explanation;
    explanation.operation = c10::toString(overload.operator_name());
    const auto found = rules.find(explanation.operation);
    explanation.rule = found == rules.end() ? Rule::keep : found->second.rule;
    explanation.source = found == rules.end() ? "not listed" : found->second.source;
    for (size_t i = 0; i < formats.size(); ++i) {
      explanation.arguments.push_back({names[i], formats[i], formats[i]});
    }
    if (apply(explanation, policy, formats, compute) && is_mixed(explanation)) {
      explanation.note =
          "these formats differ: LibTorch computes mixed formats in some operations and refuses "
          "them in others";
    }
    if (explanation.rule == Rule::keep && is_composite(overload)) {
      explanation.outcome += "; the operations that it is made of follow their own rules";
    }
    result.push_back(std::move(explanation));
  }
  std::sort(result.begin(), result.end(),
            [](const Explanation& a, const Explanation& b) { return a.operation < b.operation; });
  MANTISSA_CHECK(!result.empty(), InvalidArgument, "explain: no overload of ", operation, " takes ",
                 formats.size(), " tensors; give fewer formats");
  return result;
}

}  // namespace mantissa::amp
