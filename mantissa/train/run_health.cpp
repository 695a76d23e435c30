#include "mantissa/train/run_health.h"

#include <cmath>
#include <map>

#include "mantissa/base/error.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/train/twin_run.h"

namespace mantissa::train {
namespace {

long percent(double share) { return std::lround(100 * share); }

// `blocks.0.mlp` of `blocks.0.mlp.up.weight`: what is named alike is told together.
std::string path_of(const std::string& parameter) {
  const size_t end = parameter.rfind('.');
  return end == std::string::npos ? parameter : parameter.substr(0, end);
}

std::vector<std::string> lines_of_dead(const RunHealth& health) {
  std::map<std::string, double> shares;  // the largest of a path
  for (const monitor::TwinRow& row : health.dead) {
    double& share = shares[path_of(row.operation)];
    share = std::max(share, row.zeros);
  }
  std::vector<std::string> lines;
  lines.reserve(shares.size());
  for (const auto& [path, share] : shares) {
    lines.push_back(
        concat("dead by underflow: ", percent(share), " % of the gradient of ", path,
               " is 0 at loss scale ", health.scale,
               ", where FP32 has numbers; use a larger or dynamic loss scale, or bf16"));
  }
  return lines;
}

}  // namespace

std::string_view to_string(Ailment ailment) {
  switch (ailment) {
    case Ailment::none:
      return "none";
    case Ailment::nonfinite:
      return "nonfinite";
    case Ailment::dead_gradients:
      return "dead_gradients";
    case Ailment::lost_updates:
      return "lost_updates";
  }
  MANTISSA_ASSERT(false);
}

RunHealth examine_steps(const NextSteps& steps, const RunConfig& config) {
  const auto learner = steps.learner(config);
  RunHealth health;
  // The last step is compared before it is trained.
  const auto see = [&](const StepReport& report) {
    ++health.steps;
    health.scale = report.scale;
    health.lost = report.lost;
  };
  health.failed = steps.train(*learner, config, steps.num_steps(), see);
  if (health.failed) {
    health.ailment = Ailment::nonfinite;
    health.scale = health.failed->report.scale;
    return health;
  }
  if (tensor::is_16bit(tensor::dtype_of(numerics::parse_format(config.precision.compute)))) {
    const TwinRun twin = compare_with_twin(config, *learner, steps.batches().back().front());
    health.dead = monitor::dead_gradients(twin.report);
  }
  if (!health.dead.empty()) {
    health.ailment = Ailment::dead_gradients;
  } else if (!health.lost.empty()) {
    health.ailment = Ailment::lost_updates;
  }
  return health;
}

RunHealth examine_run(const RunConfig& config, const NextStepsOptions& options) {
  const NextSteps steps(config, options);
  RunConfig explained = steps.config();
  explained.train.explain_skips = true;
  return examine_steps(steps, explained);
}

std::vector<std::string> describe(const RunHealth& health) {
  std::vector<std::string> lines;
  if (health.failed) {
    lines.push_back(concat(
        "step ", health.failed->step,
        " fails: ", health.failed->why.empty() ? "a gradient is not finite" : health.failed->why));
  }
  for (std::string& line : lines_of_dead(health)) {
    lines.push_back(std::move(line));
  }
  if (!health.lost.empty()) {
    const optim::LostUpdates& first = health.lost.front();
    lines.push_back(concat(
        "updates lost: ", percent(first.share), " % of those of ", first.parameter,
        " are less than half of a rounding step",
        health.lost.size() > 1 ? concat(", likewise of ", health.lost.size() - 1, " others") : "",
        "; set optim.masters to fp32, split, compensated or stochastic"));
  }
  if (lines.empty()) {
    lines.push_back(concat("well: ", health.steps, " of ", health.steps,
                           " steps applied, gradients and updates as in FP32"));
  }
  return lines;
}

}  // namespace mantissa::train
