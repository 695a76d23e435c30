#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace mantissa::tensor {

/// A parameter and the dotted path by which policies, optimizer groups, monitor and checkpoint
/// name it: `blocks.0.attention.qkv.weight`. The tensor is the model's own, not a copy.
struct Parameter {
  std::string name;
  at::Tensor value;
};

/// In the model's order; names are unique.
using ParameterList = std::vector<Parameter>;

}  // namespace mantissa::tensor
