#include "mantissa/cli/turns.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <typeinfo>

#include "mantissa/base/error.h"
#include "mantissa/cli/divergence.h"
#include "mantissa/cli/progress_display.h"
#include "mantissa/record/reader.h"
#include "mantissa/report/quantity.h"
#include "mantissa/tensor/memory.h"
#include "mantissa/train/run_folder.h"
#include "mantissa/train/run_slice.h"

namespace mantissa::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct Run {
  const Arm* arm = nullptr;
  train::RunConfig config;
  std::filesystem::path folder;
  int64_t done_steps = 0;  // as far as slices tell
  bool has_ended = false;
  train::LoopOutcome outcome;
  std::string failure;

  bool is_open() const { return !has_ended && failure.empty(); }
  std::string label() const { return concat(arm->name, " seed ", config.train.seed); }
};

// Other kinds say that the call, the build, the disk or a file is wrong, and concern all runs.
bool concerns_this_run(const Error& error) { return typeid(error) == typeid(Error); }

class Trainer {
 public:
  Trainer(const Comparison& comparison, const std::atomic<int>& stop)
      : comparison_(comparison),
        stop_(stop),
        lock_(train::RunFolder::create(comparison.out)),
        journal_(comparison.out / "slices.jsonl"),
        session_s_(now_s()) {
    if (comparison.energy) {
      meter_.emplace(*comparison.energy);
    }
    for (int64_t seed = 0; seed < comparison.seeds; ++seed) {
      for (const Arm& arm : comparison.arms) {
        Run& run = runs_.emplace_back();
        run.arm = &arm;
        run.config = arm.config_of(seed);
        run.folder = arm.folder_of(seed);
        for (const record::Slice& slice : journal_.slices()) {
          if (slice.arm == arm.name && slice.seed == run.config.train.seed) {
            run.done_steps = std::max(run.done_steps, slice.last_step);
          }
        }
        steps_before_ += run.done_steps;
      }
    }
  }

  // False when interrupted.
  bool train() {
    const size_t arms = comparison_.arms.size();
    for (size_t first = 0; first < runs_.size(); first += arms) {
      const auto begin = runs_.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = begin + static_cast<std::ptrdiff_t>(arms);
      while (std::any_of(begin, end, [](const Run& run) { return run.is_open(); })) {
        for (size_t i = 0; i < arms; ++i) {
          Run& run = runs_[first + (round_ % 2 == 0 ? i : arms - 1 - i)];
          if (run.is_open() && !train_slice(run)) {
            return false;
          }
        }
        ++round_;
        show_progress();
      }
    }
    return true;
  }

  TurnsOutcome outcome() const {
    TurnsOutcome result;
    result.slices = journal_.slices();
    result.energy_problem = meter_ ? meter_->problem() : std::string();
    for (const Run& run : runs_) {
      report::StudyRun& told = result.runs.emplace_back();
      told.arm = run.arm->name;
      told.seed = run.config.train.seed;
      told.failure = run.failure;
      told.microbatch = run.config.microbatch();
      const std::filesystem::path record = run.folder / "record.jsonl";
      if (std::filesystem::exists(record)) {
        told.entries = record::read(record).entries;
        record::require_possible(told.entries, concat("record ", record.string()));
      }
      if (run.failure.empty()) {
        told.summary = run.outcome.summary;
        result.has_diverged =
            report_divergence(run.config, run.outcome, run.folder) || result.has_diverged;
      }
    }
    MANTISSA_CHECK(
        std::any_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.failure.empty(); }),
        Error, runs_.front().failure);
    return result;
  }

 private:
  // False when interrupted.
  bool train_slice(Run& run) {
    ProgressDisplay display(run.config.train.steps, run.label() + ": ");
    const Clock::time_point start = Clock::now();
    const double joules = meter_ ? meter_->sample() : 0;
    Clock::time_point sampled = start;
    train::LoopOptions options;
    options.stop = &stop_;
    options.observe = [&](const record::Event& event) {
      display.show(event);
      if (meter_ && seconds_since(sampled) > 1) {
        meter_->sample();
        sampled = Clock::now();
      }
    };
    tensor::memory::reset_peak();  // each run's peak is its own
    train::SliceOutcome slice;
    try {
      slice = train::run_slice(run.config, run.folder, options);
    } catch (const Error& error) {
      if (!concerns_this_run(error)) {
        throw;
      }
      run.failure = error.what();
      std::cerr << "mantissa: " << run.label() << " failed: " << run.failure << "\n";
      return true;
    }
    if (slice.first_step > 0) {
      note(run, slice, seconds_since(start), joules);
    }
    run.has_ended = slice.outcome.ending != train::Ending::interrupted;
    run.outcome = slice.outcome;
    return run.has_ended || stop_.load() == 0;
  }

  void note(Run& run, const train::SliceOutcome& slice, double wall_s, double joules_before) {
    record::Slice line;
    line.arm = run.arm->name;
    line.seed = run.config.train.seed;
    line.session_s = session_s_;
    line.round = round_;
    line.first_step = slice.first_step;
    line.last_step = slice.last_step;
    line.wall_s = wall_s;
    if (meter_) {
      const double joules = meter_->sample();
      if (meter_->problem().empty()) {
        line.energy_j = joules - joules_before;
        line.energy_of = meter_->measured();
      }
    }
    line.peak_bytes = slice.outcome.peak_bytes;
    line.peak_holders = slice.outcome.peak_holders;
    journal_.append(line);
    run.done_steps = slice.last_step;
  }

  void show_progress() const {
    int64_t done = 0;
    int64_t all = 0;
    for (const Run& run : runs_) {
      const bool is_over = !run.is_open();
      done += is_over ? run.done_steps : std::min(run.done_steps, run.config.train.steps);
      all += is_over ? run.done_steps : run.config.train.steps;
    }
    if (done == steps_before_ || all == 0) {
      return;  // there was nothing left to train
    }
    const double left_s = seconds_since(start_) / static_cast<double>(done - steps_before_) *
                          static_cast<double>(all - done);
    std::cerr << "compare: " << 100 * done / all << " % of " << all << " steps, "
              << report::duration_text(left_s) << " left\n";
  }

  const Comparison& comparison_;
  const std::atomic<int>& stop_;
  train::RunFolder lock_;  // two comparisons in one folder would take turns with each other
  record::SliceJournal journal_;
  double session_s_;
  int64_t round_ = 0;
  std::optional<EnergyMeter> meter_;
  std::vector<Run> runs_;     // seed by seed
  int64_t steps_before_ = 0;  // of this process
  Clock::time_point start_ = Clock::now();
};

}  // namespace

TurnsOutcome train_in_turns(const Comparison& comparison, const std::atomic<int>& stop) {
  Trainer trainer(comparison, stop);
  if (!trainer.train()) {
    TurnsOutcome interrupted;
    interrupted.is_interrupted = true;
    return interrupted;
  }
  return trainer.outcome();
}

}  // namespace mantissa::cli
