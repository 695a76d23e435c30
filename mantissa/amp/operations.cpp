#include "mantissa/amp/operations.h"

#include <algorithm>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"

namespace mantissa::amp {
namespace {

constexpr std::string_view kAten = "aten::";
constexpr std::string_view kUnnamed = "default";  // as torch.ops.aten.mm.default in Python

bool takes_tensors(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& argument) { return holds_tensors(argument.type()); });
}

c10::TypePtr without_optional(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::OptionalType ? type->containedType(0) : type;
}

c10::OperatorHandle select_overload(const std::vector<c10::OperatorHandle>& overloads,
                                    std::string_view name, std::string_view overload,
                                    std::string_view where) {
  std::vector<std::string> names;
  for (const c10::OperatorHandle& candidate : overloads) {
    const std::string& candidate_name = candidate.operator_name().overload_name;
    names.push_back(candidate_name.empty() ? std::string(kUnnamed) : candidate_name);
    if (names.back() == overload) {
      return candidate;
    }
  }
  throw InvalidArgument(concat(where, ": operation ", name, " has no overload \"", overload, "\"",
                               suggestion(overload, names)));
}

// The first argument is a tensor that is written into, and no other is.
bool is_in_place(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const auto is_written = [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  };
  return !arguments.empty() && is_written(arguments[0]) &&
         arguments[0].type()->kind() == c10::TypeKind::TensorType &&
         std::none_of(arguments.begin() + 1, arguments.end(), is_written);
}

}  // namespace

bool holds_tensors(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) {
    return true;
  }
  if (type->kind() == c10::TypeKind::OptionalType || type->kind() == c10::TypeKind::ListType) {
    return holds_tensors(type->containedType(0));
  }
  return false;
}

std::string qualified(std::string_view operation) {
  return operation.find("::") == std::string_view::npos ? concat(kAten, operation)
                                                        : std::string(operation);
}

c10::OperatorName operator_name(std::string_view operation) {
  const std::string full = qualified(operation);
  const size_t dot = full.find('.');
  return {full.substr(0, dot), dot == std::string::npos ? "" : full.substr(dot + 1)};
}

OperationIndex::OperationIndex() : names_(c10::Dispatcher::singleton().getAllOpNames()) {}

std::vector<c10::OperatorHandle> OperationIndex::overloads(std::string_view name) const {
  std::vector<c10::OperatorHandle> result;
  for (const c10::OperatorName& candidate : names_) {
    if (candidate.name == name) {
      if (const auto operation = c10::Dispatcher::singleton().findSchema(candidate)) {
        result.push_back(*operation);
      }
    }
  }
  return result;
}

bool OperationIndex::has(std::string_view operation) const {
  const std::string full = qualified(operation);
  const size_t dot = full.find('.');
  const std::string_view overload =
      dot == std::string::npos ? std::string_view() : std::string_view(full).substr(dot + 1);
  return std::any_of(names_.begin(), names_.end(), [&](const c10::OperatorName& name) {
    return name.name == std::string_view(full).substr(0, dot) &&
           (dot == std::string::npos || name.overload_name == overload ||
            (overload == kUnnamed && name.overload_name.empty()));
  });
}

void OperationIndex::throw_unknown(std::string_view operation, const std::string& name,
                                   std::string_view where) const {
  // Within its library first: what all names there begin with makes none of them near.
  const std::string library = name.substr(0, name.find("::") + 2);
  std::set<std::string> all;
  std::set<std::string> own;
  for (const c10::OperatorName& candidate : names_) {
    all.insert(candidate.name);
    if (candidate.name.starts_with(library)) {
      own.insert(candidate.name.substr(library.size()));
    }
  }
  std::string near = own.empty() ? nearest(name, {all.begin(), all.end()})
                                 : nearest(name.substr(library.size()), {own.begin(), own.end()});
  if (!own.empty() && !near.empty() && operation.starts_with(library)) {
    near = library + near;
  }
  throw InvalidArgument(concat(where, ": unknown operation \"", operation, "\"",
                               near.empty() ? "; load the library that registers it first"
                                            : "; did you mean \"" + near + "\"?"));
}

// Why `rule` cannot apply to `operation`; empty when it can.
std::string OperationIndex::obstacle(const c10::OperatorHandle& operation, Rule rule) const {
  if (is_in_place(operation.schema())) {
    return rule == Rule::to_self || rule == Rule::keep
               ? ""
               : "writes into `self`, which keeps its dtype; its rule is to_self, or list the form "
                 "that returns a tensor";
  }
  if (rule == Rule::to_self) {
    return "does not write into `self`, so to_self does not apply; use widest";
  }
  if (operation.schema().is_mutable()) {
    return "writes into its arguments, which keep their dtypes; list the form that returns a "
           "tensor";
  }
  if (!takes_tensors(operation.schema())) {
    return "takes no tensor, so no rule applies; remove the entry";
  }
  if (rule == Rule::fp32_output && !with_dtype(operation)) {
    return "has no dtype argument, so fp32_output does not apply; use fp32";
  }
  return {};
}

std::vector<c10::OperatorHandle> OperationIndex::find(std::string_view operation, Rule rule,
                                                      std::string_view where) const {
  const std::string full = qualified(operation);
  const size_t dot = full.find('.');
  const std::string name = full.substr(0, dot);
  std::vector<c10::OperatorHandle> candidates = overloads(name);
  if (candidates.empty()) {
    throw_unknown(operation, name, where);
  }
  if (dot != std::string::npos) {
    candidates = {select_overload(candidates, name, full.substr(dot + 1), where)};
  }
  std::vector<c10::OperatorHandle> result;
  std::string reason;
  for (const c10::OperatorHandle& candidate : candidates) {
    std::string here = obstacle(candidate, rule);
    if (here.empty()) {
      result.push_back(candidate);
    } else if (reason.empty() || !candidate.schema().is_mutable()) {
      reason = std::move(here);  // that of a form which could have been meant
    }
  }
  MANTISSA_CHECK(!result.empty(), InvalidArgument, where, ": operation \"", operation, "\" ",
                 reason);
  return result;
}

std::optional<c10::OperatorHandle> OperationIndex::with_dtype(
    const c10::OperatorHandle& operation) const {
  const auto& arguments = operation.schema().arguments();
  if (arguments.empty() || arguments[0].type()->kind() != c10::TypeKind::TensorType) {
    return std::nullopt;
  }
  if (const auto index = operation.schema().argumentIndexWithName("dtype")) {
    const bool optional = arguments[*index].type()->kind() == c10::TypeKind::OptionalType;
    return optional ? std::make_optional(operation) : std::nullopt;
  }
  for (const c10::OperatorHandle& candidate : overloads(operation.operator_name().name)) {
    const auto& others = candidate.schema().arguments();
    // LibTorch 2.11 and 2.12 also have overloads with names for dimensions.
    const auto same = [](const c10::Argument& a, const c10::Argument& b) {
      return a.name() == b.name() && *without_optional(a.type()) == *without_optional(b.type());
    };
    if (!candidate.schema().is_mutable() && others.size() == arguments.size() + 1 &&
        others.back().name() == "dtype" &&
        std::equal(arguments.begin(), arguments.end(), others.begin(), same)) {
      return candidate;
    }
  }
  return std::nullopt;
}

}  // namespace mantissa::amp
