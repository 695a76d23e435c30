#include "mantissa/train/recommend_run.h"

#include "mantissa/base/error.h"

namespace mantissa::train {
namespace {

bool is_well(const RunHealth& health) {
  return health.ailment == Ailment::none || health.ailment == Ailment::lost_updates;
}

// Trials of the steps, quickly: without explanations, and without a twin where a step that fails is
// what is to be cured.
class StepTrials {
 public:
  StepTrials(const NextSteps& steps, Ailment ailment) : steps_(steps), ailment_(ailment) {}

  bool is_well(const RunConfig& given) const {
    RunConfig config = given;
    config.train.explain_skips = false;
    if (ailment_ == Ailment::nonfinite) {
      const auto learner = steps_.learner(config);
      return !steps_.train(*learner, config, steps_.num_steps());
    }
    return train::is_well(examine_steps(steps_, config));
  }

 private:
  const NextSteps& steps_;
  Ailment ailment_;
};

}  // namespace

RunRecommendation recommend_for_run(const RunConfig& given, const NextStepsOptions& options,
                                    const RecommendOptions& search) {
  const NextSteps steps(given, options);
  RunConfig config = steps.config();
  config.train.explain_skips = true;
  RunRecommendation result;
  result.health = examine_steps(steps, config);
  const amp::Policy policy = policy_of(config);
  result.cheapest.policy = policy;
  if (is_well(result.health)) {
    result.cheapest.why = "well as it is";
    return result;
  }
  const StepTrials trials(steps, result.health.ailment);
  const auto healthy = [&](const amp::Policy& trial) {
    return trials.is_well(with_policy(config, trial));
  };
  RecommendOptions all = search;
  if (config.precision.compute == "fp16" && config.scale_kind() != "dynamic") {
    all.healthy_scaled = [&](const amp::Policy& trial) {
      RunConfig scaled = with_policy(config, trial);
      scaled.scale = {.kind = "dynamic"};
      return trials.is_well(scaled);
    };
  }
  const auto learner = steps.learner(config);
  const std::vector<Keep> found = candidates([&] {
    const at::Tensor loss = forward_loss(learner->parts(), steps.batches().front().front());
  });
  result.cheapest = recommend(policy, found, healthy, all);
  const Curable curable = result.cheapest.curable;
  if (curable == Curable::by_scale || curable == Curable::by_range) {
    all.only_policy = true;
    result.kept = recommend(policy, found, healthy, all);
  }
  return result;
}

std::optional<std::string> policy_file(const RunConfig& config,
                                       const RunRecommendation& recommendation) {
  const Recommendation& chosen =
      recommendation.kept ? *recommendation.kept : recommendation.cheapest;
  if (chosen.curable != Curable::by_policy ||
      chosen.policy.compute != numerics::parse_format(config.precision.compute)) {
    return std::nullopt;
  }
  return concat("# Found by mantissa inspect --recommend: ", chosen.why, ".\n",
                amp::to_toml(chosen.policy));
}

}  // namespace mantissa::train
