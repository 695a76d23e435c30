#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "mantissa/amp/op_rules.h"
#include "mantissa/base/api.h"

namespace mantissa::amp {

/// `aten::mm` for `mm`; other names as they are.
std::string qualified(std::string_view operation);

/// `aten::softmax` with overload `int` for `softmax.int`; without an overload for `mm`.
c10::OperatorName operator_name(std::string_view operation);

/// Whether an argument of this type is a tensor, an optional tensor or a list of either.
bool holds_tensors(const c10::TypePtr& type);

/// The operations that LibTorch's dispatcher has when this is made.
class MANTISSA_API OperationIndex {
 public:
  OperationIndex();

  /// The overloads that a key of Policy::rules stands for: those that a rule can apply to, never
  /// none. Throws InvalidArgument with the nearest valid name; `where` begins the message.
  std::vector<c10::OperatorHandle> find(std::string_view operation, Rule rule,
                                        std::string_view where) const;

  /// Whether there is an operation of that name (a key of Policy::rules), with that overload.
  bool has(std::string_view operation) const;

  /// The overload that `operation` becomes under Rule::fp32_output, or nothing when there is none:
  /// itself when it has an optional `dtype`, else the one with the same arguments and `dtype`.
  std::optional<c10::OperatorHandle> with_dtype(const c10::OperatorHandle& operation) const;

 private:
  std::vector<c10::OperatorHandle> overloads(std::string_view name) const;
  std::string obstacle(const c10::OperatorHandle& operation, Rule rule) const;

  [[noreturn]] void throw_unknown(std::string_view operation, const std::string& name,
                                  std::string_view where) const;

  std::vector<c10::OperatorName> names_;
};

}  // namespace mantissa::amp
