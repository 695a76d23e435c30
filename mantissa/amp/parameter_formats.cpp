#include "mantissa/amp/parameter_formats.h"

#include <algorithm>

#include <ATen/ops/isfinite.h>

#include "mantissa/amp/shipped_policies.h"
#include "mantissa/base/error.h"
#include "mantissa/base/glob.h"
#include "mantissa/base/nearest.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/shapes_only.h"

namespace mantissa::amp {
namespace {

void require_match(const std::string& glob, const tensor::ParameterList& parameters) {
  std::vector<std::string> names;
  for (const tensor::Parameter& parameter : parameters) {
    if (glob_match(glob, parameter.name)) {
      return;
    }
    names.push_back(parameter.name);
  }
  throw InvalidArgument(concat("policy: parameter \"", glob, "\" matches no parameter of the model",
                               suggestion(glob, names)));
}

// A finite number that became infinite names its parameter: a BF16 weight of 1e5 has no FP16 form.
void require_fits(const tensor::Parameter& parameter, const at::Tensor& cast,
                  at::ScalarType dtype) {
  if (tensor::is_shapes_only()) {
    return;
  }
  const bool lost = at::isfinite(parameter.value.detach())
                        .logical_and(at::isfinite(cast).logical_not())
                        .any()
                        .item<bool>();
  MANTISSA_CHECK(!lost, InvalidArgument, "parameter ", parameter.name, ": has values beyond ",
                 "the range of ", dtype, ", up to ",
                 parameter.value.detach().abs().max().item<double>(),
                 "; keep it in fp32 or bf16 by an entry in the policy's parameters");
}

}  // namespace

ParameterFormats::ParameterFormats(const Policy& policy, tensor::ParameterList parameters)
    : parameters_(std::move(parameters)) {
  const Policy& base = shipped_policy(policy.base).defaults;
  for (const auto& [glob, format] : policy.parameters) {
    if (!base.parameters.contains(glob)) {
      require_match(glob, parameters_);
    }
  }
  for (const tensor::Parameter& parameter : parameters_) {
    const numerics::Format format = parameter_format(policy, parameter.name);
    formats_.emplace_back(parameter.name, format);
    const bool is_own =
        std::any_of(policy.parameters.begin(), policy.parameters.end(),
                    [&](const auto& entry) { return glob_match(entry.first, parameter.name); });
    if (is_own) {
      own_.emplace(parameter.value.unsafeGetTensorImpl(), tensor::dtype_of(format));
    }
  }
}

void ParameterFormats::cast_parameters_() const {
  std::vector<std::pair<at::Tensor, at::Tensor>> changes;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const tensor::Parameter& parameter = parameters_[i];
    const at::ScalarType dtype = tensor::dtype_of(formats_[i].second);
    if (parameter.value.scalar_type() != dtype) {
      const at::Tensor cast = parameter.value.detach().to(dtype);
      require_fits(parameter, cast, dtype);
      changes.emplace_back(parameter.value, cast);
    }
  }
  for (auto& [parameter, cast] : changes) {
    parameter.mutable_grad().reset();
    parameter.set_data(cast);
  }
}

at::Tensor cast_output(const Policy& policy, const at::Tensor& tensor) {
  if (!policy.output || !tensor.is_floating_point() || tensor.scalar_type() == at::kDouble) {
    return tensor;
  }
  return tensor.to(tensor::dtype_of(*policy.output));
}

}  // namespace mantissa::amp
