#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "bench/same_losses.h"

namespace mantissa::bench {

/// What a script of bench/peer is given: a safetensors file of `tensors`, among them the weights,
/// `tokens` and `targets`, with `settings` as its metadata.
struct PythonInput {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> settings;
};

/// A step of Python's torch, in a process of its own with as many threads as this one has:
/// `python SCRIPT FILE VARIANT THREADS`. The file is gone with the step.
Step python_step(const std::string& python, const std::string& script, const PythonInput& input,
                 const std::string& variant);

}  // namespace mantissa::bench
