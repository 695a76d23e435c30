#pragma once

#include <utility>

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "mantissa/amp/region_state.h"

namespace mantissa::amp {

/// For an autograd function of a user's own: its backward runs in the region in which its forward
/// ran, with the same policy, parameter formats and scope; without this it would run in none.
/// torch's custom_fwd and custom_bwd do the same in Python.
///
///     struct Square : amp::AutocastFunction<Square> {
///       static at::Tensor forward_in_region(torch::autograd::AutogradContext* context,
///                                           const at::Tensor& x) {
///         context->save_for_backward({x});
///         return x.mul(x);
///       }
///       static torch::autograd::variable_list backward_in_region(
///           torch::autograd::AutogradContext* context,
///           const torch::autograd::variable_list& gradients) {
///         return {gradients[0].mul(context->get_saved_variables()[0]).mul(2)};
///       }
///     };
///     at::Tensor y = Square::apply(x);
///
/// A function whose arithmetic needs FP32 opens `Autocast::disabled()` in both and casts what it is
/// given: that is custom_fwd's cast_inputs. A gradient returned in another floating-point dtype
/// than its input's is cast by LibTorch.
template <typename Derived>
struct AutocastFunction : torch::autograd::Function<Derived> {
  template <typename... Arguments>
  static auto forward(torch::autograd::AutogradContext* context, Arguments&&... arguments) {
    context->saved_data[kRegion] = c10::IValue::make_capsule(c10::make_intrusive<Region>());
    return Derived::forward_in_region(context, std::forward<Arguments>(arguments)...);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto region = context->saved_data[kRegion].toCapsule();
    const RestoreRegion restored(static_cast<const Region&>(*region).state);
    return Derived::backward_in_region(context, gradients);
  }

 private:
  static constexpr const char* kRegion = "mantissa.region";

  struct Region : torch::CustomClassHolder {
    RegionState state;
  };
};

}  // namespace mantissa::amp
