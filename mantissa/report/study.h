#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/bootstrap.h"
#include "mantissa/base/equivalence.h"
#include "mantissa/record/event.h"
#include "mantissa/record/slice.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/speed_facts.h"

namespace mantissa::report {

/// A run of a comparison, as it was trained.
struct StudyRun {
  std::string arm;
  int64_t seed = 0;
  record::Summary summary;             // when it did not fail
  std::vector<record::Entry> entries;  // of its record
  std::string failure;                 // why it did not come to its end; empty: it did
  int64_t microbatch = 0;              // sequences a forward pass; 0: not told
};

/// What is asked of a comparison. A number that is not known is not asked for.
struct StudyOptions {
  double margin = 0.01;       // of equivalence, bits per base
  double target = kNotKnown;  // validation, bits per base
  double price_per_hour = kNotKnown;
  double watts = kNotKnown;    // of the machine, in place of measured energy
  std::string energy_problem;  // why none is measured
  int64_t patience = 0;        // what train.patience of this would have done; 0: not asked
};

/// A slice by the median of its timed steps.
struct SliceTime {
  double session_s = 0;
  int64_t round = 0;
  int64_t first_step = 0;
  int64_t last_step = 0;
  double step_s = kNotKnown;  // where none is timed

  auto operator<=>(const SliceTime&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// What a run came to, out of its record and its slices.
///
/// Timed are the steps of slices but their warm-up: the first five of a slice, at most half of it.
/// The training time of a number of steps counts each with the median of those of its run that are
/// timed, so that what else the machine did in some of them favours no run, and a skipped step with
/// its own time. Validations and checkpoints are not in it.
struct RunResult {
  std::string arm;
  int64_t seed = 0;
  std::string failure;
  record::Summary summary;  // peak_bytes and peak_holders of the slice with the highest peak; of a
                            // run that failed these, scale and skipped_steps alone
  std::vector<record::Evaluation> evaluations;
  std::vector<record::Step> scales;  // the first step, and each whose scale is another: see `scale`
  int64_t microbatch = 0;
  std::vector<SliceTime> slices;
  int64_t timed_steps = 0;
  double training_s = kNotKnown;
  int64_t target_step = -1;     // of the first validation at or below the target; -1: none
  double target_s = kNotKnown;  // training time until then
  // Had StudyOptions::patience ended it. The run is the same until then, bit for bit: nothing of a
  // step looks at the steps to come but the schedule, which is that of train.steps in both.
  int64_t stop_step = 0;            // of all steps when it would not have
  double stop_s = kNotKnown;        // training time until then
  double stop_bits = kNotKnown;     // best validation until then, and
  double best_bits = kNotKnown;     // of all
  double energy_j = kNotKnown;      // of all steps
  int64_t energy_steps = 0;         // of which it was measured; the rest is taken to be like it
  std::set<std::string> energy_of;  // what counted it: Slice::energy_of
};

/// The runs of one arm, and what they are beside those of the reference. NaN, or nothing, where it
/// is not known. Medians of runs are over seeds.
struct ArmResult {
  std::string arm;
  std::vector<RunResult> runs;  // by seed
  int64_t failed = 0;           // runs
  Estimate step_s;              // median of the slices' medians; NaN interval below 6 slices
  int64_t slices = 0;
  double tokens_per_s = kNotKnown;
  std::optional<Estimate> speed;    // times as fast as the reference: median over pairs of slices
  std::optional<SpeedFacts> facts;  // of an arm in 16 bits whose records tell where its time went
  int64_t pairs = 0;                // slices beside one of the reference in the same round
  std::map<std::string, int64_t> peak_bytes;  // of the run with the highest peak
  std::map<std::string, int64_t> peak_holders;
  int64_t peak_total = 0;
  double memory = kNotKnown;           // peak over that of the reference
  double bits_per_base = kNotKnown;    // mean of the last validations
  std::vector<double> differences;     // of them, from the reference, by seed; finite ones
  bool is_validated = false;           // some run has a validation
  std::optional<Equivalence> quality;  // of the differences: two seeds or more, none missing
  int64_t reached = 0;                 // runs that reached the target
  double target_step = kNotKnown;      // median; infinite when half of the runs or more did not
  double target_s = kNotKnown;         // likewise
  double target_cost = kNotKnown;      // likewise
  double training_s = kNotKnown;       // median of the whole runs
  double cost = kNotKnown;             // likewise
  double energy_j = kNotKnown;         // likewise
};

enum class QualityVerdict : uint8_t {
  equivalent,  // these three: base/equivalence.h
  different,
  inconclusive,
  not_tested,  // one seed, or nothing held out for validation
  failed,      // a run failed, or ended with a validation that is no number
};

MANTISSA_API std::string_view to_string(QualityVerdict verdict);

/// Of an arm beside the reference.
MANTISSA_API QualityVerdict quality_verdict(const ArmResult& arm);

struct MANTISSA_API Study {
  StudyOptions options;
  std::string reference;  // the arm that others are held against
  int64_t seeds = 0;
  std::vector<ArmResult> arms;      // in the order of `arms` of analyse()
  double training_s = 0;            // of all runs together
  std::set<std::string> energy_of;  // of all runs; those of several are of different quantities

  const ArmResult& arm(const std::string& name) const;
};

/// Median with the interval of base/bootstrap.h; without one (NaN) below six samples, and not known
/// of none.
MANTISSA_API Estimate median_of(const std::vector<double>& samples);

/// Slices side by side: runs of one seed that took their turns in the same round of one process,
/// over the same steps. An interval of fewer than six slices or pairs is not given: see
/// base/bootstrap.h. `arms` orders the result and has `reference`; each arm has a run a seed.
/// Throws InvalidArgument when runs differ in their number of parameters.
MANTISSA_API Study analyse(const std::vector<std::string>& arms, const std::string& reference,
                           const std::vector<StudyRun>& runs,
                           const std::vector<record::Slice>& slices, const StudyOptions& options);

}  // namespace mantissa::report
