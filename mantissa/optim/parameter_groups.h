#pragma once

#include <string>
#include <vector>

#include "mantissa/optim/optimizer.h"

namespace mantissa::optim {

/// What the options come to for one parameter.
struct ParameterSettings {
  double lr_scale = 1;
  double weight_decay = 0;
};

/// One for each name, in order. Throws as the constructor of Optimizer.
std::vector<ParameterSettings> settings_of(const std::vector<std::string>& names,
                                           const OptimizerOptions& options);

/// Throws InvalidArgument for values out of range and for settings that the kind would ignore.
void validate(const OptimizerOptions& options);

}  // namespace mantissa::optim
