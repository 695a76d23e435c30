#include "mantissa/train/why_run.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/monitor/operation_times.h"
#include "mantissa/monitor/time_split.h"
#include "mantissa/tensor/generator_state.h"
#include "mantissa/tensor/state_dict.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/format_reason.h"
#include "mantissa/train/microbatch.h"
#include "mantissa/train/step.h"
#include "mantissa/train/time_split_record.h"

namespace mantissa::train {
namespace {

// One of the two runs.
class Runner {
 public:
  Runner(const RunConfig& config, const RunData& data)
      : data_(data),
        learner_(config),
        reasons_(policy_of(config)),
        generator_(tensor::cpu_generator_state()),
        position_(make_loader(config, data)->state_dict()) {
    timed_.config = config;
  }

  // A turn of `steps` timed steps.
  void take_turn(int64_t steps) {
    Turn turn(*this);
    (void)applied_step(turn, nullptr);
    std::vector<double> seconds;
    for (int64_t i = 0; i < steps; ++i) {
      const std::map<std::string, double> phases = applied_step(turn, nullptr);
      seconds.push_back(total_of(phases));
      for (const auto& [phase, phase_s] : phases) {
        timed_.phases[phase] += phase_s;
      }
      ++num_timed_;
    }
    timed_.rounds.push_back(std::move(seconds));
  }

  void look(int64_t steps) {
    Turn turn(*this);
    (void)applied_step(turn, nullptr);
    std::vector<record::TimeSplit> splits;
    for (int64_t i = 0; i < steps; ++i) {
      splits.emplace_back();
      (void)applied_step(turn, &splits.back());
    }
    timed_.split = *std::min_element(splits.begin(), splits.end(),
                                     [](const record::TimeSplit& a, const record::TimeSplit& b) {
                                       return a.step_time_s < b.step_time_s;
                                     });
  }

  TimedSteps result() const {
    TimedSteps result = timed_;
    for (auto& [phase, seconds] : result.phases) {
      seconds /= static_cast<double>(num_timed_);
    }
    return result;
  }

 private:
  // The loader and LibTorch's generator are those of this run, until its end.
  class Turn {
   public:
    explicit Turn(Runner& runner)
        : loader(make_loader(runner.timed_.config, runner.data_)), runner_(runner) {
      loader->load_state_dict(runner.position_);
      tensor::set_cpu_generator_state(runner.generator_);
    }
    ~Turn() {
      runner_.position_ = loader->state_dict();
      runner_.generator_ = tensor::cpu_generator_state();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    std::unique_ptr<data::Loader> loader;

   private:
    Runner& runner_;
  };

  std::map<std::string, double> applied_step(Turn& turn, record::TimeSplit* seen) {
    for (int attempt = 0; attempt <= kMostScaleSkips; ++attempt) {
      monitor::TimeSplit split;
      std::optional<monitor::OperationTimes> times;
      if (seen != nullptr) {
        times.emplace(&split);
      }
      std::vector<data::Batch> microbatches;
      {
        const monitor::TimeSplit::Scope data(&split, monitor::Phase::data);
        microbatches = next_microbatches(timed_.config, *turn.loader);
      }
      StepParts parts = learner_.parts();
      parts.explain_skips = false;
      parts.times = &split;
      const StepReport report = training_step(parts, microbatches, learner_.lr());
      std::map<std::string, double> phases = phases_of(split);
      if (report.outcome == optim::StepOutcome::applied) {
        if (seen != nullptr) {
          const auto rows = times->finish();
          *seen = time_split_event(learner_.optimizer().steps(), phases, *times, rows, reasons_);
        }
        return phases;
      }
    }
    throw Error(concat("why: ", kMostScaleSkips, " steps in a row in ",
                       timed_.config.precision.compute,
                       " were skipped, and what is skipped has no time; mantissa inspect --blame "
                       "says why"));
  }

  const RunData& data_;
  Learner learner_;
  FormatReasons reasons_;
  at::Tensor generator_;
  tensor::StateDict position_;
  TimedSteps timed_;
  int64_t num_timed_ = 0;
};

}  // namespace

TimedPair time_pair(const RunConfig& first, const RunConfig& second, int64_t steps) {
  constexpr int64_t kLooks = 5;
  MANTISSA_CHECK(steps > 0 && steps % kTimingRounds == 0, InvalidArgument, "why: steps is ", steps,
                 "; use a multiple of ", kTimingRounds, ", the number of turns");
  use_allocator(first);
  use_threads(first);
  const RunData data = open_data(first);
  const RunConfig decided = with_microbatch(first, data);
  RunConfig other = second;
  other.train.microbatch = decided.train.microbatch;
  Runner a(decided, data);
  Runner b(other, data);
  for (int64_t round = 0; round < kTimingRounds; ++round) {
    Runner& earlier = round % 2 == 0 ? a : b;
    Runner& later = round % 2 == 0 ? b : a;
    earlier.take_turn(steps / kTimingRounds);
    later.take_turn(steps / kTimingRounds);
  }
  a.look(kLooks);
  b.look(kLooks);
  return {a.result(), b.result()};
}

}  // namespace mantissa::train
