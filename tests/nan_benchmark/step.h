#pragma once

#include <ATen/core/Tensor.h>

#include "case.h"
#include "mantissa/amp/policy.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::nan_benchmark {

/// One step of a case, from a fresh parameter `x`: a forward pass under a policy, and the backward
/// pass where there is something to differentiate.
class Step {
 public:
  Step(const Case& given, bool is_faulty);

  /// The forward pass, and the sum of its results; they themselves where they have no gradient.
  at::Tensor loss(const amp::Policy& policy);

  void run(const amp::Policy& policy, double scale);

  /// Whether loss and gradient of the last run are.
  bool is_finite() const;

  const tensor::ParameterList& parameters() const { return parameters_; }

 private:
  const Case& case_;
  bool is_faulty_;
  tensor::ParameterList parameters_;
  at::Tensor loss_;
};

}  // namespace mantissa::nan_benchmark
