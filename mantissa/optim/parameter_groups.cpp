#include "mantissa/optim/parameter_groups.h"

#include <algorithm>
#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/base/glob.h"
#include "mantissa/base/nearest.h"

namespace mantissa::optim {
namespace {

bool matches_any(const std::vector<std::string>& globs, const std::string& name) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const std::string& glob) { return glob_match(glob, name); });
}

void require_matches(const std::vector<std::string>& globs, const std::vector<std::string>& names,
                     const std::string& where) {
  for (const std::string& glob : globs) {
    const bool found = std::any_of(names.begin(), names.end(),
                                   [&](const std::string& name) { return glob_match(glob, name); });
    MANTISSA_CHECK(found, InvalidArgument, where, ": \"", glob, "\" matches no parameter",
                   suggestion(glob, names));
  }
}

void require_range(const char* name, double value, double low, double high) {
  MANTISSA_CHECK(std::isfinite(value) && value >= low && value < high, InvalidArgument,
                 "optimizer: ", name, " is ", value, "; valid: ", low, " to below ", high);
}

}  // namespace

void validate(const OptimizerOptions& options) {
  const OptimizerOptions unset;
  const auto require_unset = [&](const char* name, double value, double default_value) {
    MANTISSA_CHECK(value == default_value, InvalidArgument, "optimizer: ", name, " is ", value,
                   ", which ", to_string(options.kind), " ignores; leave it out");
  };
  require_range("weight_decay", options.weight_decay, 0, HUGE_VAL);
  if (options.kind != Kind::sgd) {
    require_range("beta1", options.beta1, 0, 1);
    require_range("beta2", options.beta2, 0, 1);
    // Below FP32's smallest normal number a division by it may overflow.
    require_range("eps", options.eps, 0x1p-126, HUGE_VAL);
    MANTISSA_CHECK(options.decay == WeightDecay::decoupled, InvalidArgument,
                   "optimizer: decay is l2, which counts for sgd; use kind adam for an L2 penalty, "
                   "adamw for decoupled decay");
    MANTISSA_CHECK(options.momentum_kind == Momentum::classic, InvalidArgument,
                   "optimizer: momentum_kind is nesterov, which ", to_string(options.kind),
                   " ignores; use sgd");
    require_unset("momentum", options.momentum, unset.momentum);
  } else {
    require_unset("beta1", options.beta1, unset.beta1);
    require_unset("beta2", options.beta2, unset.beta2);
    require_unset("eps", options.eps, unset.eps);
    require_range("momentum", options.momentum, 0, 1);
    MANTISSA_CHECK(options.momentum != 0 || options.momentum_kind == Momentum::classic,
                   InvalidArgument,
                   "optimizer: momentum_kind is nesterov and momentum is 0; give a momentum");
    MANTISSA_CHECK(options.momentum != 0 || options.moments == MomentFormat::fp32, InvalidArgument,
                   "optimizer: moments is ", to_string(options.moments),
                   " and momentum is 0, so that there are none; give a momentum");
  }
  for (const GroupOptions& group : options.groups) {
    require_range("lr_scale", group.lr_scale, 0, HUGE_VAL);
    require_range("weight_decay", group.weight_decay.value_or(0), 0, HUGE_VAL);
  }
}

std::vector<ParameterSettings> settings_of(const std::vector<std::string>& names,
                                           const OptimizerOptions& options) {
  for (const GroupOptions& group : options.groups) {
    require_matches(group.names, names, "optimizer: groups");
  }
  if (options.no_decay != kNormsAndBiases) {
    require_matches(options.no_decay, names, "optimizer: no_decay");
  }
  std::vector<ParameterSettings> result;
  for (const std::string& name : names) {
    ParameterSettings settings;
    settings.weight_decay = matches_any(options.no_decay, name) ? 0 : options.weight_decay;
    const GroupOptions* chosen = nullptr;
    for (const GroupOptions& group : options.groups) {
      if (!matches_any(group.names, name)) {
        continue;
      }
      MANTISSA_CHECK(chosen == nullptr, InvalidArgument, "optimizer: groups: parameter \"", name,
                     "\" is matched by two groups, of \"", chosen->names[0], "\" and \"",
                     group.names[0], "\"; let it match one");
      chosen = &group;
      settings.lr_scale = group.lr_scale;
      settings.weight_decay = group.weight_decay.value_or(settings.weight_decay);
    }
    result.push_back(settings);
  }
  return result;
}

}  // namespace mantissa::optim
