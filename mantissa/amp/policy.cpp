#include "mantissa/amp/policy.h"

#include <algorithm>
#include <initializer_list>
#include <sstream>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

#include "mantissa/amp/operations.h"
#include "mantissa/amp/policy_builder.h"
#include "mantissa/amp/shipped_policies.h"
#include "mantissa/base/error.h"
#include "mantissa/base/glob.h"
#include "mantissa/base/nearest.h"

namespace mantissa::amp {
namespace {

using numerics::Format;

constexpr std::string_view kAten = "aten::";
constexpr std::array kLikeLinear = {"mantissa::linear_cross_entropy", "mantissa::gelu_linear",
                                    "mantissa::swiglu_linear", "mantissa::rotary_attention"};
constexpr std::array kNorms = {"mantissa::layer_norm", "mantissa::rms_norm",
                               "mantissa::add_layer_norm", "mantissa::add_rms_norm"};
constexpr std::string_view kScopePrefix = "scope:";
constexpr std::string_view kParameterPrefix = "parameter:";

// `scope::op` is an operation of a library called scope.
bool has_prefix(std::string_view word, std::string_view prefix) {
  return word.starts_with(prefix) && !word.substr(prefix.size()).starts_with(":");
}

std::string display_name(const std::string& operation) {
  return operation.starts_with(kAten) ? operation.substr(kAten.size()) : operation;
}

constexpr char kAt = '@';  // between an operation and the scopes of its entry

struct RuleKey {
  std::string operation;
  std::optional<std::string> glob;
};

RuleKey rule_key(std::string_view key) {
  const size_t at = key.find(kAt);
  if (at == std::string_view::npos) {
    return {std::string(key), std::nullopt};
  }
  return {std::string(key.substr(0, at)), std::string(key.substr(at + 1))};
}

bool names_one_overload(std::string_view operation) {
  return operation.find('.') != std::string_view::npos;
}

using ResolvedRules = std::map<std::string, ResolvedRule>;

void add_list(TorchList list, ResolvedRules& result) {
  const std::string source =
      concat("torch 2.", TORCH_VERSION_MINOR, " for ", list == TorchList::cuda ? "CUDA" : "CPU");
  for (const OpRule& row : torch_list(list, TORCH_VERSION_MINOR)) {
    const c10::OperatorName name = operator_name(row.operation);
    if (c10::Dispatcher::singleton().findSchema(name)) {
      result.insert_or_assign(c10::toString(name), ResolvedRule{row.rule, source});
    }
  }
}

void add_overloads(const OperationIndex& operations, std::string_view operation, Rule rule,
                   const std::string& source, std::string_view where, ResolvedRules& result) {
  for (const c10::OperatorHandle& overload : operations.find(operation, rule, where)) {
    result.insert_or_assign(c10::toString(overload.operator_name()), ResolvedRule{rule, source});
  }
}

// Twice over the entries, so that one with an overload wins over one without.
void add_rules(const OperationIndex& operations, std::span<const OpRule> rules,
               const std::string& source, ResolvedRules& result) {
  for (const bool exact : {false, true}) {
    for (const OpRule& row : rules) {
      if (names_one_overload(row.operation) == exact && operations.has(row.operation)) {
        add_overloads(operations, row.operation, row.rule, source, "policy", result);
      }
    }
  }
}

// Our own operations without a rule of theirs.

// The rows of a table.
void follow_embedding(ResolvedRules& result) {
  const auto found = result.find("aten::embedding");
  if (found != result.end()) {
    const ResolvedRule& rule = found->second;
    result.emplace("mantissa::embedding",
                   ResolvedRule{rule.rule, concat("as embedding, ", rule.source)});
  }
}

// A linear layer with what is around it goes where
// `linear` goes, or `mm`, which that becomes; a loss, which is such a result, is not lowered. Where
// linear layers are lowered, a norm's result is what they read.
void follow_linear(ResolvedRules& result) {
  for (const char* operation : {"aten::linear", "aten::mm"}) {
    const auto found = result.find(operation);
    if (found == result.end() || found->second.rule == Rule::keep ||
        found->second.rule == Rule::lower_output) {
      continue;
    }
    const ResolvedRule own = {found->second.rule,
                              concat("as ", display_name(operation), ", ", found->second.source)};
    for (const char* like : kLikeLinear) {
      result.emplace(like, own);
    }
    if (own.rule == Rule::lower) {
      for (const char* norm : kNorms) {
        result.emplace(norm, ResolvedRule{Rule::lower_output, own.source});
      }
    }
    return;
  }
}

ResolvedRules resolve(const Policy& policy, const OperationIndex& operations,
                      std::string_view where) {
  ResolvedRules result;
  const ShippedPolicy& base = shipped_policy(policy.base);
  if (base.list) {
    add_list(*base.list, result);
  }
  for (const Fix fix : policy.fixes) {
    add_rules(operations, rules_of(fix), concat(words(fix).name, "=", words(fix).on), result);
  }
  add_rules(operations, base.rules, concat("base ", policy.base), result);
  for (const bool exact : {false, true}) {
    for (const auto& [operation, rule] : policy.rules) {
      if (!rule_key(operation).glob && names_one_overload(operation) == exact) {
        add_overloads(operations, operation, rule,
                      concat(display_name(operation), "=", to_string(rule)), where, result);
      }
    }
  }
  follow_linear(result);
  follow_embedding(result);
  std::erase_if(result, [](const auto& entry) { return entry.second.rule == Rule::keep; });
  return result;
}

// Characters of a glob that are no wildcards.
size_t num_literals(std::string_view glob) {
  return static_cast<size_t>(
      std::count_if(glob.begin(), glob.end(), [](char c) { return c != '*' && c != '?'; }));
}

std::vector<ScopedRule> resolve_scoped(const Policy& policy, const OperationIndex& operations,
                                       std::string_view where) {
  std::vector<ScopedRule> result;
  for (const bool exact : {false, true}) {
    for (const auto& [key, rule] : policy.rules) {
      const auto [operation, glob] = rule_key(key);
      if (!glob || names_one_overload(operation) != exact) {
        continue;
      }
      const std::string source = concat(display_name(key), "=", to_string(rule));
      for (const c10::OperatorHandle& overload : operations.find(operation, rule, where)) {
        result.push_back({*glob, c10::toString(overload.operator_name()), {rule, source}});
      }
    }
  }
  std::stable_sort(result.begin(), result.end(), [](const ScopedRule& a, const ScopedRule& b) {
    return std::pair(num_literals(a.glob), a.glob) < std::pair(num_literals(b.glob), b.glob);
  });
  return result;
}

bool is_16bit(Format format) { return format == Format::bf16 || format == Format::fp16; }

std::string names_of(std::initializer_list<Format> formats) {
  std::string names;
  for (const Format format : formats) {
    names += concat(names.empty() ? "" : " ", numerics::to_string(format));
  }
  return names;
}

constexpr std::initializer_list<Format> kComputeFormats = {Format::fp32, Format::tf32, Format::bf16,
                                                           Format::fp16};
constexpr std::initializer_list<Format> kStoredFormats = {Format::fp32, Format::bf16, Format::fp16};

void require_one_of(Format format, std::initializer_list<Format> valid, std::string_view what,
                    std::string_view where) {
  MANTISSA_CHECK(std::find(valid.begin(), valid.end(), format) != valid.end(), InvalidArgument,
                 where, ": ", what, " cannot be ", numerics::to_string(format),
                 "; valid: ", names_of(valid));
}

void require_effect(const Policy& policy, const OperationIndex& operations,
                    std::string_view where) {
  require_one_of(policy.compute, kComputeFormats, "compute", where);
  require_one_of(policy.param, kStoredFormats, "param", where);
  require_one_of(policy.output.value_or(Format::fp32), kStoredFormats, "output", where);
  for (const auto& [glob, format] : policy.scopes) {
    require_one_of(format, kComputeFormats, concat("scope ", glob), where);
  }
  for (const auto& [glob, format] : policy.parameters) {
    require_one_of(format, kStoredFormats, concat("parameter ", glob), where);
  }
  const bool lowers = is_16bit(policy.compute) || policy.compute == Format::tf32;
  const ResolvedRules rules = resolve(policy, operations, where);
  const bool has_lower = std::any_of(rules.begin(), rules.end(), [](const auto& entry) {
    return entry.second.rule == Rule::lower;
  });
  MANTISSA_CHECK(has_lower || !lowers, InvalidArgument, where,
                 ": compute=", numerics::to_string(policy.compute),
                 " has no effect, because no operation of base \"", policy.base,
                 "\" has rule lower; use another base, or compute=fp32");
}

Format parse_format_of(std::string_view text, std::string_view setting,
                       std::initializer_list<Format> valid, std::string_view where) {
  for (const Format format : valid) {
    if (numerics::to_string(format) == text) {
      return format;
    }
  }
  throw InvalidArgument(concat(where, ": unknown format \"", text, "\" in \"", setting, "=", text,
                               "\"; valid: ", names_of(valid)));
}

// Of the globs that `matches`, the value of the one with the most characters that are no wildcards.
template <typename Matches>
std::optional<Format> most_exact(const std::map<std::string, Format>& globs,
                                 const Matches& matches) {
  std::optional<Format> result;
  size_t most = 0;
  for (const auto& [glob, format] : globs) {
    const size_t literals = num_literals(glob);
    if ((!result || literals >= most) && matches(glob)) {
      result = format;
      most = literals;
    }
  }
  return result;
}

}  // namespace

FixWords words(Fix fix) {
  switch (fix) {
    case Fix::reduce:
      return {"reduce", "fp32", "compute"};
    case Fix::promote:
      return {"promote", "all", "listed"};
    case Fix::foreign:
      return {"foreign", "widen", "refuse"};
    case Fix::losses:
      return {"losses", "fp32", "parts"};
    case Fix::statistics:
      return {"statistics", "fp32", "keep"};
    case Fix::fft:
      return {"fft", "fp32", "keep"};
  }
  MANTISSA_ASSERT(false);
}

std::vector<std::string> PolicyBuilder::setting_names() {
  std::vector<std::string> names = {"compute", "param", "output"};
  for (const Fix fix : kFixes) {
    names.emplace_back(words(fix).name);
  }
  return names;
}

void PolicyBuilder::set_base(std::string_view name, std::string_view where) {
  const std::vector<std::string> valid = policy_names();
  MANTISSA_CHECK(std::find(valid.begin(), valid.end(), name) != valid.end(), InvalidArgument, where,
                 ": unknown base \"", name, "\"", suggestion(name, valid));
  base_ = name;
}

bool PolicyBuilder::set(std::string_view name, std::string_view value, std::string_view where) {
  const auto set_format = [&](std::optional<Format>& format, std::initializer_list<Format> valid) {
    MANTISSA_CHECK(!format, InvalidArgument, where, ": ", name, "=", value,
                   " is given after another ", name, "; keep one");
    format = parse_format_of(value, name, valid, where);
    return true;
  };
  if (name == "compute") {
    return set_format(compute_, kComputeFormats);
  }
  if (name == "param") {
    return set_format(param_, kStoredFormats);
  }
  if (name == "output") {
    return set_format(output_, kStoredFormats);
  }
  for (const Fix fix : kFixes) {
    const FixWords w = words(fix);
    if (w.name == name) {
      MANTISSA_CHECK(value == w.on || value == w.off, InvalidArgument, where, ": ", name, "=",
                     value, "; valid: ", w.on, " ", w.off);
      MANTISSA_CHECK(fixes_.emplace(fix, value == w.on).second, InvalidArgument, where, ": ", name,
                     "=", value, " is given after another ", name, "; keep one");
      return true;
    }
  }
  return false;
}

void PolicyBuilder::add_rule(std::string_view operation, std::string_view rule,
                             std::string_view where) {
  for (const auto& [prefix, section] :
       {std::pair(kScopePrefix, "scopes"), std::pair(kParameterPrefix, "parameters")}) {
    MANTISSA_CHECK(!has_prefix(operation, prefix), InvalidArgument, where, ": \"", operation,
                   "\" is not an operation; write what follows \"", prefix, "\" in [", section,
                   "]");
  }
  const auto [name, glob] = rule_key(operation);
  MANTISSA_CHECK(!glob || !glob->empty(), InvalidArgument, where, ": \"", operation,
                 "\" names no scope after the @; write ", name, "@blocks.*=", rule, ", or ", name,
                 "=", rule, " for all of them");
  // Operations of libraries have two colons.
  const size_t colon = name.find(':');
  if (colon != std::string::npos && name.substr(colon, 2) != "::") {
    const std::string prefix = name.substr(0, colon + 1);
    throw InvalidArgument(
        concat(where, ": unknown prefix \"", prefix, "\" of \"", operation, "\"",
               suggestion(prefix, {std::string(kScopePrefix), std::string(kParameterPrefix)})));
  }
  Rule parsed{};
  try {
    parsed = parse_rule(rule);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat(where, ": operation \"", operation, "\": ", error.what()));
  }
  (void)operations_.find(name, parsed, where);
  const bool is_new =
      rules_.emplace(glob ? concat(qualified(name), kAt, *glob) : qualified(name), parsed).second;
  MANTISSA_CHECK(is_new, InvalidArgument, where, ": operation \"", operation,
                 "\" has two rules; keep one");
}

void PolicyBuilder::add_scope(std::string_view glob, std::string_view format,
                              std::string_view where) {
  MANTISSA_CHECK(!glob.empty(), InvalidArgument, where, ": a scope without a name");
  const Format parsed = parse_format_of(format, concat("scope:", glob), kComputeFormats, where);
  MANTISSA_CHECK(scopes_.emplace(glob, parsed).second, InvalidArgument, where, ": scope \"", glob,
                 "\" has two formats; keep one");
}

void PolicyBuilder::add_parameter(std::string_view glob, std::string_view format,
                                  std::string_view where) {
  MANTISSA_CHECK(!glob.empty(), InvalidArgument, where, ": a parameter without a name");
  const Format parsed = parse_format_of(format, concat("parameter:", glob), kStoredFormats, where);
  MANTISSA_CHECK(parameters_.emplace(glob, parsed).second, InvalidArgument, where, ": parameter \"",
                 glob, "\" has two formats; keep one");
}

Policy PolicyBuilder::build(std::string_view where) const {
  Policy policy = shipped_policy(base_).defaults;
  policy.compute = compute_.value_or(policy.compute);
  policy.param = param_.value_or(policy.param);
  MANTISSA_CHECK(!param_ || !compute_ || *param_ == Format::fp32 || *param_ == *compute_,
                 InvalidArgument, where, ": param=", numerics::to_string(*param_),
                 " with compute=", numerics::to_string(*compute_),
                 "; parameters are fp32 or of the compute format");
  policy.output = output_ ? output_ : policy.output;
  policy.rules = rules_;
  for (const auto& [fix, on] : fixes_) {
    if (on) {
      policy.fixes.insert(fix);
    } else {
      policy.fixes.erase(fix);
    }
  }
  for (const auto& [glob, format] : scopes_) {
    policy.scopes.insert_or_assign(glob, format);
  }
  for (const auto& [glob, format] : parameters_) {
    policy.parameters.insert_or_assign(glob, format);
  }
  require_effect(policy, operations_, where);
  return policy;
}

std::string to_string(const Policy& policy) {
  const Policy& base = shipped_policy(policy.base).defaults;
  std::string text = concat(policy.base, " compute=", numerics::to_string(policy.compute));
  if (policy.param != base.param) {
    text += concat(" param=", numerics::to_string(policy.param));
  }
  if (policy.output && policy.output != base.output) {
    text += concat(" output=", numerics::to_string(*policy.output));
  }
  for (const Fix fix : kFixes) {
    const bool on = policy.fixes.contains(fix);
    if (on != base.fixes.contains(fix)) {
      text += concat(" ", words(fix).name, "=", on ? words(fix).on : words(fix).off);
    }
  }
  for (const auto& [operation, rule] : policy.rules) {
    text += concat(" ", display_name(operation), "=", to_string(rule));
  }
  const auto add_globs = [&](std::string_view prefix, const std::map<std::string, Format>& globs,
                             const std::map<std::string, Format>& of_base) {
    for (const auto& [glob, format] : globs) {
      const auto found = of_base.find(glob);
      if (found == of_base.end() || found->second != format) {
        text += concat(" ", prefix, glob, "=", numerics::to_string(format));
      }
    }
  };
  add_globs(kScopePrefix, policy.scopes, base.scopes);
  add_globs(kParameterPrefix, policy.parameters, base.parameters);
  return text;
}

Policy parse_policy(std::string_view text) {
  constexpr std::string_view kWhere = "policy";
  std::istringstream input{std::string(text)};
  std::string word;
  MANTISSA_CHECK(input >> word, InvalidArgument,
                 "policy: the text is empty; write a base (mantissa policy list shows them), then "
                 "SETTING=VALUE and OPERATION=RULE");
  PolicyBuilder builder;
  builder.set_base(word, kWhere);
  while (input >> word) {
    const size_t equals = word.rfind('=');
    MANTISSA_CHECK(equals != std::string::npos, InvalidArgument, "policy: \"", word,
                   "\" is not a setting; write compute=FORMAT or OPERATION=RULE");
    const std::string key = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (has_prefix(key, kScopePrefix)) {
      builder.add_scope(key.substr(kScopePrefix.size()), value, kWhere);
    } else if (has_prefix(key, kParameterPrefix)) {
      builder.add_parameter(key.substr(kParameterPrefix.size()), value, kWhere);
    } else if (!builder.set(key, value, kWhere)) {
      builder.add_rule(key, value, kWhere);
    }
  }
  return builder.build(kWhere);
}

bool covers(std::string_view glob, std::string_view scope) {
  for (size_t end = scope.find('.'); end != std::string_view::npos;
       end = scope.find('.', end + 1)) {
    if (glob_match(glob, scope.substr(0, end))) {
      return true;
    }
  }
  return !scope.empty() && glob_match(glob, scope);
}

Format compute_format(const Policy& policy, std::string_view scope) {
  const auto holds = [scope](std::string_view glob) { return covers(glob, scope); };
  return most_exact(policy.scopes, holds).value_or(policy.compute);
}

Format parameter_format(const Policy& policy, std::string_view name) {
  const auto matches = [name](std::string_view glob) { return glob_match(glob, name); };
  return most_exact(policy.parameters, matches).value_or(policy.param);
}

std::map<std::string, ResolvedRule> resolved_rules(const Policy& policy, std::string_view scope) {
  constexpr std::string_view kWhere = "policy";
  const OperationIndex operations;
  require_effect(policy, operations, kWhere);
  ResolvedRules result = resolve(policy, operations, kWhere);
  for (const ScopedRule& scoped : resolve_scoped(policy, operations, kWhere)) {
    if (covers(scoped.glob, scope)) {
      result.insert_or_assign(scoped.operation, scoped.resolved);
    }
  }
  std::erase_if(result, [](const auto& entry) { return entry.second.rule == Rule::keep; });
  return result;
}

std::vector<ScopedRule> scoped_rules(const Policy& policy) {
  return resolve_scoped(policy, OperationIndex(), "policy");
}

}  // namespace mantissa::amp
