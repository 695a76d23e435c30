#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/amp/policy.h"
#include "mantissa/base/api.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::amp {

/// The format of each parameter of a model under a policy: `param`, or that of the entry in
/// `parameters` that matches its name. Keeps the parameters alive.
///
///     const amp::ParameterFormats formats(policy, model.parameters());
///     formats.cast_parameters_();
///     ...
///     const amp::Autocast region(policy, formats);
class MANTISSA_API ParameterFormats {
 public:
  /// Throws InvalidArgument when an entry that is not one of the policy's base matches no
  /// parameter, with the nearest name.
  ParameterFormats(const Policy& policy, tensor::ParameterList parameters);

  /// Casts the parameters in place and drops the gradients of those whose dtype changes. The
  /// tensors keep their identity. A number that the format cannot hold is an InvalidArgument that
  /// names the parameter, before anything is cast.
  void cast_parameters_() const;

  /// The parameters with their formats, in the order in which they were given.
  const std::vector<std::pair<std::string, numerics::Format>>& formats() const { return formats_; }

  /// Does an entry of the policy name a parameter?
  bool has_own() const { return !own_.empty(); }

  /// The dtype of a parameter that an entry of the policy names; nothing for all other tensors.
  std::optional<at::ScalarType> own_dtype(const at::Tensor& tensor) const {
    const auto found = own_.find(tensor.unsafeGetTensorImpl());
    return found == own_.end() ? std::nullopt : std::make_optional(found->second);
  }

 private:
  tensor::ParameterList parameters_;
  std::vector<std::pair<std::string, numerics::Format>> formats_;
  std::unordered_map<const c10::TensorImpl*, at::ScalarType> own_;
};

/// `tensor` in the output format of `policy`; as it is when the policy has none, and when it is not
/// floating point or double.
MANTISSA_API at::Tensor cast_output(const Policy& policy, const at::Tensor& tensor);

}  // namespace mantissa::amp
