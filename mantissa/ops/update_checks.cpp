#include "mantissa/ops/update_checks.h"

#include <ATen/ops/empty_like.h>

#include "mantissa/base/error.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

float scalar_or(const at::Tensor& tensor, float otherwise, const char* name,
                const std::string& where) {
  if (!tensor.defined()) {
    return otherwise;
  }
  MANTISSA_CHECK(tensor.scalar_type() == at::kFloat && tensor.dim() == 0, InvalidArgument, where,
                 ": ", name, " is ", tensor.scalar_type(), " of shape ", tensor.sizes(),
                 "; pass a 0-d Float tensor");
  return tensor.item<float>();
}

}  // namespace

at::Tensor to_strided(const at::Tensor& gradient) {
  return gradient.layout() == at::kStrided ? gradient : gradient.coalesce().to_dense();
}

void check_gradient(const at::Tensor& gradient, const std::string& where) {
  MANTISSA_CHECK(gradient.defined(), InvalidArgument, where,
                 " is undefined; leave out parameters without a gradient");
  MANTISSA_CHECK(gradient.device().is_cpu(), Unsupported, where, " is on ", gradient.device(),
                 "; move it to cpu");
  const at::ScalarType dtype = gradient.scalar_type();
  MANTISSA_CHECK(dtype == at::kFloat || tensor::is_16bit(dtype), InvalidArgument, where, " is ",
                 dtype, "; valid: Float BFloat16 Half");
}

WeightUpdate checked(const WeightUpdate& update, const std::string& where) {
  const at::Tensor& master = update.master;
  MANTISSA_CHECK(master.defined() && master.device().is_cpu() &&
                     master.scalar_type() == at::kFloat && master.is_non_overlapping_and_dense(),
                 InvalidArgument, where,
                 ": the master is not a dense Float tensor on cpu; pass one");
  check_gradient(update.gradient, where + ": the gradient");
  MANTISSA_CHECK(update.gradient.sizes() == master.sizes(), InvalidArgument, where,
                 ": the gradient has shape ", update.gradient.sizes(), ", the master ",
                 master.sizes(), "; pass the gradient of this parameter");
  if (update.model.defined()) {
    MANTISSA_CHECK(tensor::is_16bit(update.model.scalar_type()) &&
                       update.model.sizes() == master.sizes() &&
                       update.model.strides() == master.strides(),
                   InvalidArgument, where, ": the model copy is ", update.model.scalar_type(),
                   " of shape ", update.model.sizes(), " and strides ", update.model.strides(),
                   "; it must be BFloat16 or Half with the master's shape ", master.sizes(),
                   " and strides ", master.strides());
  }
  WeightUpdate result = update;
  result.gradient = to_strided(update.gradient);
  if (result.gradient.strides() != master.strides()) {
    result.gradient = at::empty_like(master, master.options().dtype(update.gradient.scalar_type()))
                          .copy_(result.gradient);
  }
  return result;
}

cpu::WeightView weight_view(const WeightUpdate& update) {
  const bool has_model = update.model.defined();
  return {
      update.master.mutable_data_ptr<float>(),
      has_model ? update.model.mutable_data_ptr() : nullptr,
      has_model ? update.model.scalar_type() : at::kFloat,
      {update.gradient.const_data_ptr(), update.gradient.scalar_type(), update.gradient.numel()}};
}

void mark_changed(const WeightUpdate& update) {
  for (const at::Tensor& tensor : {update.master, update.model}) {
    if (tensor.defined() && !tensor.is_inference()) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
}

void check_state(const at::Tensor& state, const at::Tensor& master, const std::string& where) {
  MANTISSA_CHECK(state.defined() && state.scalar_type() == at::kFloat &&
                     state.sizes() == master.sizes() && state.strides() == master.strides(),
                 InvalidArgument, where,
                 " does not fit the master; make it with zeros_like(master)");
}

float inverse_of_scale(const at::Tensor& scale, const std::string& where) {
  return static_cast<float>(1.0 / static_cast<double>(scalar_or(scale, 1.0F, "scale", where)));
}

float gradient_factor(const GradientUse& use, const std::string& where) {
  return inverse_of_scale(use.scale, where) *
         scalar_or(use.clip_factor, 1.0F, "clip_factor", where);
}

bool must_skip(const GradientUse& use, const std::string& where) {
  return scalar_or(use.found_inf, 0.0F, "found_inf", where) != 0;
}

}  // namespace mantissa::ops
