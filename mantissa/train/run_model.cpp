#include "mantissa/train/run_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/ops/tf32.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::train {

using numerics::Format;
using tensor::memory::Category;
using tensor::memory::CategoryScope;

namespace {

RunConfig in_precision(RunConfig config, Format precision) {
  const std::string name(numerics::to_string(precision));
  if (precision == Format::fp32) {
    config.precision = {.compute = name, .policy = "fp32", .param = name};
    config.optim.masters = "fp32";
    return config;
  }
  MANTISSA_CHECK(policy_of(config).base != "fp32", InvalidArgument, "precision ", name,
                 ": the policy of this run, ", config.precision.policy,
                 ", has everything in FP32; leave the precision out");
  const bool keeps_own = config.precision.param != "fp32" && config.precision.param != "auto";
  MANTISSA_CHECK(!keeps_own || config.precision.param == name, InvalidArgument, "precision ", name,
                 ": the parameters of this run are ", config.precision.param,
                 "; choose that or fp32");
  config.precision.compute = name;
  return config;
}

}  // namespace

RunModel::RunModel(const RunConfig& config, const tensor::StateDict& state,
                   std::optional<Format> precision)
    : precision_(precision.value_or(numerics::parse_format(config.precision.compute))),
      learner_(std::make_unique<Learner>(config)) {
  learner_->load_state_dict(state.under("learner"));
  if (learner_->ema()) {
    averaged_ = std::make_unique<optim::EmaGuard>(*learner_->ema());
  }
  if (numerics::to_string(precision_) == config.precision.compute) {
    return;
  }
  const at::NoGradGuard no_grad;
  auto other = std::make_unique<Learner>(in_precision(config, precision_));
  const tensor::ParameterList from = learner_->model().parameters();
  const tensor::ParameterList to = other->model().parameters();
  for (size_t i = 0; i < to.size(); ++i) {
    to[i].value.copy_(from[i].value);
  }
  averaged_.reset();  // before the learner whose weights it puts back
  learner_ = std::move(other);
}

RunModel::~RunModel() { averaged_.reset(); }

at::Tensor RunModel::log_probabilities(const at::Tensor& tokens) const {
  const at::NoGradGuard no_grad;
  const StepParts parts = learner_->parts();
  at::Tensor logits;
  {
    const ops::Tf32Guard tf32(parts.compute == Format::tf32 ? ops::Tf32::on : ops::Tf32::off);
    const CategoryScope activations(Category::activations);
    const amp::Autocast region(parts.policy, parts.formats);
    logits = amp::cast_output(parts.policy, parts.model.forward(tokens, models::Mode::evaluation));
  }
  return at::log_softmax(logits.to(at::kDouble), -1);
}

uint64_t RunModel::fingerprint() const {
  Xxh3 hash;
  for (const tensor::Parameter& parameter : learner_->model().parameters()) {
    const at::Tensor value = parameter.value.detach().contiguous();
    hash.update(parameter.name.data(), parameter.name.size() + 1);
    hash.update(value.const_data_ptr(), value.nbytes());
  }
  return hash.value();
}

}  // namespace mantissa::train
