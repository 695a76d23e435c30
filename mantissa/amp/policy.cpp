#include "mantissa/amp/policy.h"

#include <sstream>

#include <ATen/core/dispatch/Dispatcher.h>

#include "mantissa/amp/operations.h"
#include "mantissa/amp/policy_builder.h"
#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"

namespace mantissa::amp {
namespace {

constexpr std::string_view kAten = "aten::";

std::string display_name(const std::string& operation) {
  return operation.starts_with(kAten) ? operation.substr(kAten.size()) : operation;
}

bool names_one_overload(const std::string& operation) {
  return operation.find('.') != std::string::npos;
}

std::map<std::string, Rule> table_rules(std::string_view base) {
  std::map<std::string, Rule> rules;
  for (const OpRule& row : op_table(base)) {
    const std::string full = qualified(row.operation);
    const size_t dot = full.find('.');
    const c10::OperatorName name(full.substr(0, dot),
                                 dot == std::string::npos ? "" : full.substr(dot + 1));
    if (c10::Dispatcher::singleton().findSchema(name)) {
      rules.emplace(c10::toString(name), row.rule);
    }
  }
  return rules;
}

std::map<std::string, Rule> resolve(const Policy& policy, const OperationIndex& operations,
                                    std::string_view where) {
  std::map<std::string, Rule> result = table_rules(policy.base);
  // Twice over the entries, so that one with an overload wins over one without.
  for (const bool exact : {false, true}) {
    for (const auto& [operation, rule] : policy.rules) {
      if (names_one_overload(operation) == exact) {
        for (const c10::OperatorHandle& overload : operations.find(operation, rule, where)) {
          result.insert_or_assign(c10::toString(overload.operator_name()), rule);
        }
      }
    }
  }
  std::erase_if(result, [](const auto& entry) { return entry.second == Rule::keep; });
  return result;
}

bool is_compute_format(numerics::Format format) {
  return numerics::info(format).storage_bits >= 16;
}

void require_effect(const Policy& policy, const OperationIndex& operations,
                    std::string_view where) {
  MANTISSA_CHECK(is_compute_format(policy.compute), InvalidArgument, where, ": compute format ",
                 numerics::to_string(policy.compute),
                 " cannot be computed in; valid: fp32 tf32 bf16 fp16");
  if (policy.compute == numerics::Format::fp32) {
    return;
  }
  for (const auto& [operation, rule] : resolve(policy, operations, where)) {
    if (rule == Rule::lower) {
      return;
    }
  }
  throw InvalidArgument(concat(where, ": compute=", numerics::to_string(policy.compute),
                               " has no effect, because no operation of base \"", policy.base,
                               "\" has rule lower; use another base, or compute=fp32"));
}

}  // namespace

void PolicyBuilder::set_base(std::string_view name, std::string_view where) {
  for (const std::string& valid : policy_names()) {
    if (valid == name) {
      base_ = name;
      return;
    }
  }
  throw InvalidArgument(
      concat(where, ": unknown base \"", name, "\"", suggestion(name, policy_names())));
}

void PolicyBuilder::set_compute(std::string_view format, std::string_view where) {
  MANTISSA_CHECK(!compute_, InvalidArgument, where, ": compute=", format,
                 " is given after another compute; keep one");
  for (numerics::Format candidate : numerics::kFormats) {
    if (is_compute_format(candidate) && numerics::to_string(candidate) == format) {
      compute_ = candidate;
      return;
    }
  }
  throw InvalidArgument(concat(where, ": unknown format \"", format, "\" in \"compute=", format,
                               "\"; valid: fp32 tf32 bf16 fp16"));
}

void PolicyBuilder::add_rule(std::string_view operation, std::string_view rule,
                             std::string_view where) {
  Rule parsed{};
  try {
    parsed = parse_rule(rule);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat(where, ": operation \"", operation, "\": ", error.what()));
  }
  (void)operations_.find(operation, parsed, where);
  const bool is_new = rules_.emplace(qualified(operation), parsed).second;
  MANTISSA_CHECK(is_new, InvalidArgument, where, ": operation \"", operation,
                 "\" has two rules; keep one");
}

Policy PolicyBuilder::build(std::string_view where) const {
  Policy policy{base_, base_ == "fp32" ? numerics::Format::fp32 : Policy().compute, rules_};
  policy.compute = compute_.value_or(policy.compute);
  require_effect(policy, operations_, where);
  return policy;
}

std::vector<std::string> policy_names() { return op_table_names(); }

std::string to_string(const Policy& policy) {
  std::string text = concat(policy.base, " compute=", numerics::to_string(policy.compute));
  for (const auto& [operation, rule] : policy.rules) {
    text += concat(" ", display_name(operation), "=", to_string(rule));
  }
  return text;
}

Policy parse_policy(std::string_view text) {
  constexpr std::string_view kWhere = "policy";
  std::istringstream words{std::string(text)};
  std::string word;
  MANTISSA_CHECK(words >> word, InvalidArgument, "policy: the text is empty; valid: ",
                 "torch torch-cpu fp32, then compute=FORMAT and OPERATION=RULE");
  PolicyBuilder builder;
  builder.set_base(word, kWhere);
  while (words >> word) {
    const size_t equals = word.find('=');
    MANTISSA_CHECK(equals != std::string::npos, InvalidArgument, "policy: \"", word,
                   "\" is not a setting; write compute=FORMAT or OPERATION=RULE");
    const std::string key = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (key == "compute") {
      builder.set_compute(value, kWhere);
    } else {
      builder.add_rule(key, value, kWhere);
    }
  }
  return builder.build(kWhere);
}

std::map<std::string, Rule> resolved_rules(const Policy& policy) {
  constexpr std::string_view kWhere = "policy";
  const OperationIndex operations;
  require_effect(policy, operations, kWhere);
  return resolve(policy, operations, kWhere);
}

}  // namespace mantissa::amp
