#include "mantissa/monitor/skip_reason.h"

#include <cmath>

#include <ATen/core/grad_mode.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/monitor/gradients_aside.h"
#include "mantissa/tensor/generator_state.h"

namespace mantissa::monitor {
namespace {

std::string first_nonfinite_gradient(const tensor::ParameterList& parameters) {
  const at::NoGradGuard no_grad;
  for (const tensor::Parameter& parameter : parameters) {
    const at::Tensor gradient = parameter.value.grad();
    if (!gradient.defined()) {
      continue;
    }
    const at::Tensor values = gradient.is_sparse() ? gradient.coalesce().values() : gradient;
    if (!all_finite(values)) {
      return parameter.name;
    }
  }
  return "";
}

struct Replay {
  bool is_loss_finite = true;
  std::string parameter;
  NonfiniteOrigin origin;
};

// `run` is called with the step.
template <typename Run>
Replay replay(const ReplayPoint& point, const tensor::ParameterList& parameters, double scale,
              const std::function<at::Tensor()>& loss, const Run& run) {
  const ReplayPoint::Guard generator(point);
  const GradientsAside aside(parameters);
  Replay result;
  result.origin = run([&] {
    const at::Tensor value = loss();
    MANTISSA_CHECK(
        value.defined() && value.numel() == 1 && value.requires_grad(), InvalidArgument,
        "find_skip_reason: the loss is not one value with a gradient; return the loss that "
        "backward() was called on");
    result.is_loss_finite = all_finite(value);
    if (result.is_loss_finite) {
      value.to(at::kFloat).mul(scale).backward();  // as a loss scaler does
    }
  });
  result.parameter = first_nonfinite_gradient(parameters);
  return result;
}

Replay traced(const ReplayPoint& point, const tensor::ParameterList& parameters, double scale,
              const std::function<at::Tensor()>& loss) {
  return replay(point, parameters, scale, loss, [&](const std::function<void()>& step) {
    return find_nonfinite_origin(step, parameters);
  });
}

}  // namespace

std::string_view to_string(SkipCause cause) {
  switch (cause) {
    case SkipCause::forward:
      return "forward";
    case SkipCause::backward:
      return "backward";
    case SkipCause::scale:
      return "scale";
    case SkipCause::unseen:
      return "unseen";
  }
  MANTISSA_ASSERT(false);
}

std::string describe(const SkipReason& reason) {
  switch (reason.cause) {
    case SkipCause::forward:
      return concat(describe(reason.origin),
                    "; the loss is not finite, which no loss scale changes");
    case SkipCause::backward:
      return concat(describe(reason.origin), ", then in the gradient of ", reason.parameter,
                    "; the backward pass overflows at scale 1 too");
    case SkipCause::scale:
      return concat(describe(reason.origin), ", then in the gradient of ", reason.parameter,
                    "; finite at scale 1, the loss scale was too large");
    case SkipCause::unseen:
      return "all is finite when the step runs again";
  }
  MANTISSA_ASSERT(false);
}

ReplayPoint::ReplayPoint() : state_(tensor::cpu_generator_state()) {}

ReplayPoint::Guard::Guard(const ReplayPoint& point) : present_(tensor::cpu_generator_state()) {
  tensor::set_cpu_generator_state(point.state_);
}

ReplayPoint::Guard::~Guard() { tensor::set_cpu_generator_state(present_); }

SkipReason find_skip_reason(const ReplayPoint& point, const tensor::ParameterList& parameters,
                            double scale, const std::function<at::Tensor()>& loss) {
  MANTISSA_CHECK(std::isfinite(scale) && scale > 0, InvalidArgument, "find_skip_reason: scale is ",
                 scale, "; pass that of the step");
  const Replay plain = traced(point, parameters, 1, loss);
  if (!plain.is_loss_finite) {
    return {SkipCause::forward, plain.origin, ""};
  }
  if (!plain.parameter.empty()) {
    return {SkipCause::backward, plain.origin, plain.parameter};
  }
  const Replay scaled = scale == 1 ? plain : traced(point, parameters, scale, loss);
  if (!scaled.parameter.empty()) {
    return {SkipCause::scale, scaled.origin, scaled.parameter};
  }
  return {SkipCause::unseen, {}, ""};
}

bool is_finite_step(const ReplayPoint& point, const tensor::ParameterList& parameters, double scale,
                    const std::function<at::Tensor()>& loss) {
  const Replay plain = replay(point, parameters, scale, loss, [](const auto& step) {
    step();
    return NonfiniteOrigin();
  });
  return plain.is_loss_finite && plain.parameter.empty();
}

}  // namespace mantissa::monitor
