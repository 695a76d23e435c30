#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>

#include "mantissa/amp/cast_cache.h"
#include "mantissa/amp/compiled_policy.h"

namespace mantissa::amp {

/// The keys of a call that are left once autocast has had its turn.
inline constexpr c10::DispatchKeySet kBelowAutocast(c10::DispatchKeySet::FULL_AFTER, kAutocastKey);

/// Whether a rule may cast it: FP64 and integers stay as they are.
inline bool is_eligible(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble;
}

inline bool needs_cast(const at::Tensor& tensor, at::ScalarType dtype) {
  return is_eligible(tensor) && tensor.scalar_type() != dtype;
}

/// An argument as a rule of this thread's region wants it.
inline at::Tensor cast_argument(const at::Tensor& tensor, at::ScalarType dtype) {
  return needs_cast(tensor, dtype)
             ? cast_through_cache(tensor, dtype, active_compiled_policy()->sums_gradients_in_fp32)
             : tensor;
}

/// FP32 for BFloat16 with Half, of which neither holds the other.
at::ScalarType wider(at::ScalarType a, at::ScalarType b);

/// What Rule::widest casts the arguments of a call to.
class WidestDtype {
 public:
  WidestDtype(const c10::OperatorHandle& operation, const CompiledPolicy& policy)
      : operation_(operation), policy_(policy), compute_(compute_dtype(policy)) {}

  /// Throws InvalidArgument for a 16-bit dtype that is not the policy's, unless that widens it.
  void add(const at::Tensor& tensor);

  at::ScalarType value() const { return widest_.value_or(compute_); }

 private:
  const c10::OperatorHandle& operation_;
  const CompiledPolicy& policy_;
  at::ScalarType compute_;
  std::optional<at::ScalarType> widest_;
};

}  // namespace mantissa::amp
