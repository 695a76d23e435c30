#include "mantissa/monitor/gradients_aside.h"

namespace mantissa::monitor {

GradientsAside::GradientsAside(const tensor::ParameterList& parameters) : parameters_(parameters) {
  gradients_.reserve(parameters_.size());
  for (const tensor::Parameter& parameter : parameters_) {
    gradients_.push_back(parameter.value.grad());
    parameter.value.mutable_grad() = at::Tensor();
  }
}

GradientsAside::~GradientsAside() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].value.mutable_grad() = gradients_[i];
  }
}

}  // namespace mantissa::monitor
