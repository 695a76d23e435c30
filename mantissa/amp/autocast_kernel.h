#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "mantissa/amp/compiled_policy.h"
#include "mantissa/amp/operations.h"
#include "mantissa/numerics/format.h"

namespace mantissa::amp {

/// What runs in place of one listed operation inside a region: applies the rule that the thread's
/// policy has for it, then calls on with autocast excluded, so that the operations it is made of
/// are not cast again. Without a policy (a backward thread that inherited the dispatch key) or a
/// rule it passes the call on.
class AutocastKernel final : public c10::OperatorKernel {
 public:
  using Arguments = std::span<c10::IValue>;

  AutocastKernel(const c10::OperatorHandle& operation, size_t number,
                 const OperationIndex& operations);

  void operator()(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) const;

 private:
  /// Whether any was cast.
  bool cast_arguments(Arguments arguments, at::ScalarType dtype) const;
  at::ScalarType lower_dtype(Arguments arguments, at::ScalarType compute) const;
  at::ScalarType widest_dtype(const c10::OperatorHandle& operation, Arguments arguments,
                              const CompiledPolicy& policy) const;
  void call_emulated(const c10::OperatorHandle& operation, at::ScalarType dtype,
                     numerics::Format format, torch::jit::Stack* stack) const;
  void call_with_lower_output(const c10::OperatorHandle& operation, at::ScalarType compute,
                              torch::jit::Stack* stack) const;
  void call_with_fp32_output(const c10::OperatorHandle& operation, torch::jit::Stack* stack) const;

  size_t number_;
  size_t num_arguments_;
  std::vector<size_t> cast_positions_;             // arguments that a rule may cast
  std::vector<size_t> deciding_positions_;         // those of them that decide the widest dtype
  std::optional<size_t> dtype_position_;           // for fp32_output, in the operation itself ...
  std::optional<c10::OperatorHandle> with_dtype_;  // ... or in the overload called in its place
};

}  // namespace mantissa::amp
