#include "mantissa/report/study.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "mantissa/base/error.h"

namespace mantissa::report {
namespace {

constexpr double kSecondsPerHour = 3600;
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kLeastForInterval = 6;
constexpr uint64_t kBootstrapSeed = 1;

using record::Slice;
using record::Step;
using Slices = std::vector<Slice>;

int64_t sum_of(const std::map<std::string, int64_t>& parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0},
                         [](int64_t sum, const auto& part) { return sum + part.second; });
}

// Of no values: not known. An infinite one is above all others.
double median_or_unknown(const std::vector<double>& values) {
  return values.empty() ? kNotKnown : median(values);
}

int64_t warmup_steps(const Slice& slice) { return std::min<int64_t>(5, slice.steps() / 2); }

using StepTimes = std::map<int64_t, double>;

StepTimes step_times(const std::vector<record::Entry>& entries) {
  StepTimes times;
  for (const record::Entry& entry : entries) {
    if (const auto* step = std::get_if<Step>(&entry.event)) {
      times[step->step] = step->step_time_s;
    }
  }
  return times;
}

std::vector<double> timed_steps(const Slice& slice, const StepTimes& times) {
  std::vector<double> timed;
  for (auto step = times.lower_bound(slice.first_step + warmup_steps(slice));
       step != times.end() && step->first <= slice.last_step; ++step) {
    timed.push_back(step->second);
  }
  return timed;
}

Slices slices_of(const Slices& slices, const std::string& arm, int64_t seed) {
  Slices own;
  std::copy_if(slices.begin(), slices.end(), std::back_inserter(own),
               [&](const Slice& slice) { return slice.arm == arm && slice.seed == seed; });
  return own;
}

class RunAnalysis {
 public:
  RunAnalysis(const StudyRun& run, const Slices& all_slices, const StudyOptions& options)
      : slices_(slices_of(all_slices, run.arm, run.seed)), times_(step_times(run.entries)) {
    result.arm = run.arm;
    result.seed = run.seed;
    result.microbatch = run.microbatch;
    result.failure = run.failure;
    result.summary = run.summary;
    if (!run.failure.empty()) {
      result.summary = {};
      result.summary.bits_per_base = result.summary.markov_bits_per_base = kNotKnown;
    }
    read_entries(run.entries);
    read_slices();
    time_steps();
    result.training_s = time_until(std::numeric_limits<int64_t>::max());
    find_target(options.target);
    find_stop(options.patience);
    if (!std::isnan(options.watts)) {
      result.energy_j = options.watts * result.training_s;
      result.energy_steps = static_cast<int64_t>(times_.size());
    }
  }

  RunResult result;

 private:
  void read_entries(const std::vector<record::Entry>& entries) {
    for (const record::Entry& entry : entries) {
      if (const auto* evaluation = std::get_if<record::Evaluation>(&entry.event)) {
        result.evaluations.push_back(*evaluation);
      } else if (const auto* step = std::get_if<Step>(&entry.event)) {
        if (result.scales.empty() || result.scales.back().scale != step->scale) {
          Step& change = result.scales.emplace_back();
          change.step = step->step;
          change.scale = step->scale;
        }
        if (step->skipped) {
          is_skipped_.insert(step->step);
        }
        if (!result.failure.empty()) {
          result.summary.scale = step->scale;
          result.summary.skipped_steps += step->skipped ? 1 : 0;
        }
      }
    }
  }

  void read_slices() {
    double energy_j = 0;
    for (const Slice& slice : slices_) {
      if (sum_of(slice.peak_bytes) > sum_of(result.summary.peak_bytes)) {
        result.summary.peak_bytes = slice.peak_bytes;
        result.summary.peak_holders = slice.peak_holders;
      }
      if (!std::isnan(slice.energy_j)) {
        energy_j += slice.energy_j;
        result.energy_steps += slice.steps();
        result.energy_of.insert(slice.energy_of);
      }
    }
    if (result.energy_steps > 0) {
      result.energy_j =
          energy_j * static_cast<double>(times_.size()) / static_cast<double>(result.energy_steps);
    }
  }

  void time_steps() {
    std::vector<double> all;
    for (const Slice& slice : slices_) {
      const std::vector<double> timed = timed_steps(slice, times_);
      result.slices.push_back({slice.session_s, slice.round, slice.first_step, slice.last_step,
                               median_or_unknown(timed)});
      all.insert(all.end(), timed.begin(), timed.end());
    }
    result.timed_steps = static_cast<int64_t>(all.size());
    typical_s_ = median_or_unknown(all);
  }

  // Of a run without slices, which was trained by itself, the median of all.
  double time_until(int64_t last_step) const {
    std::vector<double> all;
    for (const auto& [step, seconds] : times_) {
      all.push_back(seconds);
    }
    const double typical_s = std::isnan(typical_s_) ? median_or_unknown(all) : typical_s_;
    double sum = 0;
    for (const auto& [step, seconds] : times_) {
      if (step <= last_step) {
        sum += is_skipped_.contains(step) ? seconds : typical_s;
      }
    }
    return times_.empty() ? kNotKnown : sum;
  }

  void find_target(double target) {
    for (const record::Evaluation& evaluation : result.evaluations) {
      if (evaluation.bits_per_base <= target) {  // never for a target that is not known
        result.target_step = evaluation.step;
        result.target_s = time_until(evaluation.step);
        return;
      }
    }
  }

  // As Progress of the training loop counts.
  void find_stop(int64_t patience) {
    int64_t since_best = 0;
    double best = kNever;
    result.stop_step = patience > 0 && !times_.empty() ? times_.rbegin()->first : 0;
    result.stop_s = result.stop_step > 0 ? result.training_s : kNotKnown;
    bool has_stopped = patience <= 0;
    for (const record::Evaluation& evaluation : result.evaluations) {
      since_best = evaluation.bits_per_base < best ? 0 : since_best + 1;
      best = std::min(best, evaluation.bits_per_base);
      result.best_bits = best;
      if (has_stopped) {
        continue;
      }
      result.stop_bits = best;
      if (since_best >= patience) {
        has_stopped = true;
        result.stop_step = evaluation.step;
        result.stop_s = time_until(evaluation.step);
      }
    }
  }

  Slices slices_;
  StepTimes times_;
  std::set<int64_t> is_skipped_;
  double typical_s_ = kNotKnown;
};

bool side_by_side(const SliceTime& a, const SliceTime& b) {
  return a.session_s == b.session_s && a.round == b.round && a.first_step == b.first_step &&
         a.last_step == b.last_step;
}

std::vector<double> speed_ratios(const ArmResult& own, const ArmResult& reference) {
  std::vector<double> ratios;
  for (const RunResult& run : own.runs) {
    for (const RunResult& other : reference.runs) {
      if (run.seed != other.seed) {
        continue;
      }
      for (const SliceTime& slice : run.slices) {
        for (const SliceTime& beside : other.slices) {
          const double ratio = beside.step_s / slice.step_s;
          if (side_by_side(slice, beside) && std::isfinite(ratio)) {
            ratios.push_back(ratio);
          }
        }
      }
    }
  }
  return ratios;
}

// The runs of each arm, by seed.
using Runs = std::map<int64_t, RunResult>;

// What the runs of an arm are by themselves.
ArmResult arm_alone(const std::string& name, const Runs& runs, const StudyOptions& options) {
  ArmResult arm;
  arm.arm = name;
  std::vector<double> medians;
  std::vector<double> bits;
  const auto over_runs = [&](const std::function<double(const RunResult&)>& value) {
    std::vector<double> values;
    for (const RunResult& run : arm.runs) {
      if (const double each = value(run); !std::isnan(each)) {
        values.push_back(each);
      }
    }
    return median_or_unknown(values);
  };
  for (const auto& [seed, run] : runs) {
    arm.runs.push_back(run);
    arm.failed += run.failure.empty() ? 0 : 1;
    arm.is_validated = arm.is_validated || !run.evaluations.empty();
    arm.reached += run.target_step >= 0 ? 1 : 0;
    for (const SliceTime& slice : run.slices) {
      if (!std::isnan(slice.step_s)) {
        medians.push_back(slice.step_s);
      }
    }
    if (sum_of(run.summary.peak_bytes) >= arm.peak_total) {
      arm.peak_total = sum_of(run.summary.peak_bytes);
      arm.peak_bytes = run.summary.peak_bytes;
      arm.peak_holders = run.summary.peak_holders;
    }
    if (run.failure.empty()) {
      bits.push_back(run.summary.bits_per_base);
    }
  }
  arm.slices = static_cast<int64_t>(medians.size());
  arm.step_s = median_of(medians);
  if (medians.empty()) {
    arm.step_s.value = over_runs([](const RunResult& run) {
      return run.failure.empty() ? run.summary.step_time_s : kNotKnown;
    });
  }
  arm.tokens_per_s =
      over_runs([](const RunResult& run) {
        return run.failure.empty() ? run.summary.tokens_per_s * run.summary.step_time_s : kNotKnown;
      }) /
      arm.step_s.value;
  if (!bits.empty()) {
    arm.bits_per_base =
        std::accumulate(bits.begin(), bits.end(), 0.0) / static_cast<double>(bits.size());
  }
  arm.training_s = over_runs(
      [](const RunResult& run) { return run.failure.empty() ? run.training_s : kNotKnown; });
  arm.energy_j = over_runs(
      [](const RunResult& run) { return run.failure.empty() ? run.energy_j : kNotKnown; });
  if (!std::isnan(options.target)) {
    arm.target_step = over_runs([](const RunResult& run) {
      return run.target_step >= 0 ? static_cast<double>(run.target_step) : kNever;
    });
    arm.target_s = over_runs([](const RunResult& run) {
      if (run.target_step < 0) {
        return kNever;
      }
      return run.target_s;
    });
  }
  arm.target_cost = arm.target_s * options.price_per_hour / kSecondsPerHour;
  arm.cost = arm.training_s * options.price_per_hour / kSecondsPerHour;
  return arm;
}

void hold_against(const ArmResult& reference, double margin, ArmResult& arm) {
  arm.memory = reference.peak_total > 0
                   ? static_cast<double>(arm.peak_total) / static_cast<double>(reference.peak_total)
                   : kNotKnown;
  size_t expected = 0;
  for (const RunResult& run : arm.runs) {
    const auto beside =
        std::find_if(reference.runs.begin(), reference.runs.end(),
                     [&](const RunResult& other) { return other.seed == run.seed; });
    if (beside == reference.runs.end()) {
      continue;
    }
    ++expected;
    const double difference = run.summary.bits_per_base - beside->summary.bits_per_base;
    if (run.failure.empty() && beside->failure.empty() && std::isfinite(difference)) {
      arm.differences.push_back(difference);
    }
  }
  if (expected >= 2 && arm.differences.size() == expected) {
    arm.quality = paired_equivalence(arm.differences, margin);
  }
}

bool is_16_bits(const std::string& precision) { return precision == "bf16" || precision == "fp16"; }

// Of all runs of an arm together.
std::optional<SpeedFacts> facts_of(const ArmResult& arm, const std::vector<StudyRun>& runs) {
  std::vector<record::TimeSplit> splits;
  std::string precision;
  for (const StudyRun& run : runs) {
    if (run.arm != arm.arm || !run.failure.empty() || !is_16_bits(run.summary.precision)) {
      continue;
    }
    precision = run.summary.precision;
    for (const record::Entry& entry : run.entries) {
      if (const auto* split = std::get_if<record::TimeSplit>(&entry.event)) {
        splits.push_back(*split);
      }
    }
  }
  std::optional<SpeedFacts> facts = speed_facts(splits, precision);
  if (facts) {
    facts->measured = arm.speed;
  }
  return facts;
}

void check_comparable(const std::vector<StudyRun>& runs) {
  const StudyRun* first = nullptr;
  for (const StudyRun& run : runs) {
    if (!run.failure.empty()) {
      continue;
    }
    first = first == nullptr ? &run : first;
    MANTISSA_CHECK(run.summary.params == first->summary.params, InvalidArgument, "compare: run ",
                   run.arm, " has ", run.summary.params, " parameters, run ", first->arm, " ",
                   first->summary.params, "; compare runs of the same model");
  }
}

}  // namespace

Estimate median_of(const std::vector<double>& samples) {
  if (samples.size() < kLeastForInterval) {
    return {median_or_unknown(samples), kNotKnown, kNotKnown};
  }
  return bootstrap_median(samples, kBootstrapSeed);
}

std::string_view to_string(QualityVerdict verdict) {
  switch (verdict) {
    case QualityVerdict::equivalent:
      return "equivalent";
    case QualityVerdict::different:
      return "different";
    case QualityVerdict::inconclusive:
      return "inconclusive";
    case QualityVerdict::not_tested:
      return "not tested";
    case QualityVerdict::failed:
      return "failed";
  }
  MANTISSA_ASSERT(false);
}

QualityVerdict quality_verdict(const ArmResult& arm) {
  if (arm.failed > 0 || (arm.is_validated && arm.differences.size() < arm.runs.size())) {
    return QualityVerdict::failed;
  }
  if (!arm.quality) {
    return QualityVerdict::not_tested;
  }
  switch (arm.quality->verdict) {
    case EquivalenceVerdict::equivalent:
      return QualityVerdict::equivalent;
    case EquivalenceVerdict::different:
      return QualityVerdict::different;
    case EquivalenceVerdict::inconclusive:
      return QualityVerdict::inconclusive;
  }
  MANTISSA_ASSERT(false);
}

const ArmResult& Study::arm(const std::string& name) const {
  const auto found = std::find_if(arms.begin(), arms.end(),
                                  [&](const ArmResult& each) { return each.arm == name; });
  MANTISSA_ASSERT(found != arms.end());
  return *found;
}

Study analyse(const std::vector<std::string>& arms, const std::string& reference,
              const std::vector<StudyRun>& runs, const Slices& slices,
              const StudyOptions& options) {
  check_comparable(runs);
  std::map<std::string, Runs> results;
  std::set<int64_t> seeds;
  for (const StudyRun& run : runs) {
    results[run.arm].emplace(run.seed, RunAnalysis(run, slices, options).result);
    seeds.insert(run.seed);
  }
  Study study;
  study.options = options;
  study.reference = reference;
  study.seeds = static_cast<int64_t>(seeds.size());
  for (const std::string& name : arms) {
    const ArmResult& arm = study.arms.emplace_back(arm_alone(name, results[name], options));
    for (const RunResult& run : arm.runs) {
      study.training_s += std::isnan(run.training_s) ? 0 : run.training_s;
      study.energy_of.insert(run.energy_of.begin(), run.energy_of.end());
    }
  }
  const ArmResult beside = study.arm(reference);
  for (ArmResult& arm : study.arms) {
    if (arm.arm == reference) {
      continue;
    }
    hold_against(beside, options.margin, arm);
    const std::vector<double> ratios = speed_ratios(arm, beside);
    arm.pairs = static_cast<int64_t>(ratios.size());
    if (!ratios.empty()) {
      arm.speed = median_of(ratios);
    }
    arm.facts = facts_of(arm, runs);
  }
  return study;
}

}  // namespace mantissa::report
