#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/tensor/parameter_list.h"

namespace mantissa::monitor {

/// Gradients that are put back in the end, and none in between.
class GradientsAside {
 public:
  explicit GradientsAside(const tensor::ParameterList& parameters);
  ~GradientsAside();
  GradientsAside(const GradientsAside&) = delete;
  GradientsAside& operator=(const GradientsAside&) = delete;

 private:
  const tensor::ParameterList& parameters_;
  std::vector<at::Tensor> gradients_;
};

}  // namespace mantissa::monitor
