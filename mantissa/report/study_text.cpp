#include "mantissa/report/study_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/report/comparison.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/speed_verdict.h"
#include "mantissa/report/text_table.h"

namespace mantissa::report {
namespace {

constexpr int kBitsDigits = 4;

std::string bits(double value) { return decimal_text(value, kBitsDigits); }

// A margin of 1e-5 has digits too.
std::string short_text(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.4g", value);
  return buffer.data();
}

// Two digits that count, however small.
std::string difference_text(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.2g", value);
  return buffer.data();
}

std::string signed_bits(double value) {
  return (std::signbit(value) ? "" : "+") + difference_text(value);
}

std::string p_text(double p) {
  if (p < 1e-4) {
    return "p < 0.0001";
  }
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "p = %.2g", p);
  return buffer.data();
}

// Cents, or three digits of less than one unit.
std::string cost_text(double cost) {
  const bool is_small = cost > 0 && cost < 1;
  return decimal_text(cost, is_small ? 2 - static_cast<int>(std::floor(std::log10(cost))) : 2);
}

std::string energy_text(double joules) {
  constexpr double kJoulesPerWattHour = 3600;
  return joules < kJoulesPerWattHour ? decimal_text(joules, joules < 100 ? 1 : 0) + " J"
                                     : decimal_text(joules / kJoulesPerWattHour, 2) + " Wh";
}

std::string count_of(int64_t count, const char* what) {
  return concat(count, " ", what, count == 1 ? "" : "s");
}

bool has_interval(const Estimate& estimate) { return !std::isnan(estimate.low); }

const RunResult& first_run(const ArmResult& arm) {
  const auto done = std::find_if(arm.runs.begin(), arm.runs.end(),
                                 [](const RunResult& run) { return run.failure.empty(); });
  return done == arm.runs.end() ? arm.runs.front() : *done;
}

int64_t total_skipped(const ArmResult& arm) {
  int64_t sum = 0;
  for (const RunResult& run : arm.runs) {
    sum += run.summary.skipped_steps;
  }
  return sum;
}

std::string steps_cell(const ArmResult& arm) {
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t most = 0;
  bool by_patience = false;
  for (const RunResult& run : arm.runs) {
    if (run.failure.empty()) {
      least = std::min(least, run.summary.steps);
      most = std::max(most, run.summary.steps);
      by_patience = by_patience || run.summary.stopped_by == "patience";
    }
  }
  if (most == 0) {
    return "failed";
  }
  return concat(least == most ? "" : concat(least, " to "), most, by_patience ? ", patience" : "");
}

bool has_several_microbatches(const Study& study) {
  return std::any_of(study.arms.begin(), study.arms.end(), [&](const ArmResult& arm) {
    return arm.runs.front().microbatch != study.arms.front().runs.front().microbatch;
  });
}

std::string interval_cell(const Estimate& estimate,
                          const std::function<std::string(double)>& text) {
  return has_interval(estimate) ? text(estimate.low) + " to " + text(estimate.high) : "-";
}

double bytes_per_param(const ArmResult& arm) {
  const auto& parts = first_run(arm).summary.bytes_per_param;
  double sum = 0;
  for (const auto& [part, bytes] : parts) {
    sum += bytes;
  }
  return parts.empty() ? kNotKnown : sum;
}

std::string target_cell(const ArmResult& arm, const std::string& reached) {
  return std::isfinite(arm.target_s) ? reached : "not reached";
}

std::string quality_word(const ArmResult& arm) {
  switch (quality_verdict(arm)) {
    case QualityVerdict::equivalent:
      return "as good";
    case QualityVerdict::different:
      return arm.quality->mean > 0 ? "worse" : "better";
    case QualityVerdict::inconclusive:
      return "quality open";
    case QualityVerdict::not_tested:
      return "quality not tested";
    case QualityVerdict::failed:
      return "failed";
  }
  MANTISSA_ASSERT(false);
}

std::string speed_word(const ArmResult& arm) {
  if (!arm.speed) {
    return "speed not compared";
  }
  const std::string times = decimal_text(arm.speed->value, 2) + " times as fast";
  if (!has_interval(*arm.speed)) {
    return times + " without an interval";
  }
  return arm.speed->low <= 1 && 1 <= arm.speed->high ? "neither faster nor slower" : times;
}

std::string memory_word(const ArmResult& arm) {
  return std::isnan(arm.memory) ? "memory not compared"
                                : decimal_text(arm.memory, 2) + " of the peak memory";
}

std::string range_text(const Estimate& estimate) {
  return concat("95 % interval ", decimal_text(estimate.low, 2), " to ",
                decimal_text(estimate.high, 2));
}

std::string failure_text(const ArmResult& arm) {
  for (const RunResult& run : arm.runs) {
    if (!run.failure.empty()) {
      return concat("failed: ", arm.failed, " of ", count_of(std::ssize(arm.runs), "run"),
                    " did not come to an end; seed ", run.seed, ": ", run.failure);
    }
  }
  return concat("failed: of ", count_of(std::ssize(arm.runs), "run"), " ", arm.differences.size(),
                " ended with a validation that is a number, here and in the reference");
}

std::string equivalence_text(const Equivalence& test) {
  std::string text = concat(signed_bits(test.mean), " bits/base over ", test.pairs,
                            " seeds, 90 % interval ", signed_bits(test.low), " to ",
                            signed_bits(test.high), ", margin ", short_text(test.margin));
  switch (test.verdict) {
    case EquivalenceVerdict::equivalent:
      return concat("equivalent: ", text, " (", p_text(test.p_equivalent), ")");
    case EquivalenceVerdict::different:
      return concat("different: ", test.mean > 0 ? "worse, " : "better, ", text, " (",
                    p_text(test.p_different), " of no difference)");
    case EquivalenceVerdict::inconclusive:
      return concat("inconclusive: ", text, "; these seeds would show equivalence within ",
                    difference_text(test.provable_margin), ", more seeds within less");
  }
  MANTISSA_ASSERT(false);
}

std::string cost_line(const Study& study, const ArmResult& arm) {
  const ArmResult& reference = study.arm(study.reference);
  std::string line = concat("a run ", cost_text(arm.cost), " (", study.reference, " ",
                            cost_text(reference.cost), ")");
  if (!std::isnan(study.options.target)) {
    const auto to_target = [](const ArmResult& of) {
      return std::isfinite(of.target_cost) ? cost_text(of.target_cost) : std::string("not reached");
    };
    line += concat(", to the target ", to_target(arm), " (", study.reference, " ",
                   to_target(reference), ")");
  }
  return line + concat(", at ", cost_text(study.options.price_per_hour), "/h of training time");
}

}  // namespace

std::string study_table(const Study& study) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& label,
                       const std::function<std::string(const ArmResult&)>& cell) {
    std::vector<std::string> row = {label};
    for (const ArmResult& arm : study.arms) {
      row.push_back(cell(arm));
    }
    rows.push_back(std::move(row));
  };
  const auto summary = [](const ArmResult& arm) -> const record::Summary& {
    return first_run(arm).summary;
  };
  add("", [](const ArmResult& arm) { return arm.arm; });
  add("seeds", [](const ArmResult& arm) { return std::to_string(arm.runs.size()); });
  add("steps", steps_cell);
  if (has_several_microbatches(study)) {
    add("sequences a pass",
        [](const ArmResult& arm) { return std::to_string(arm.runs.front().microbatch); });
  }
  add("step time, median", [](const ArmResult& arm) {
    return std::isnan(arm.step_s.value) ? "-" : seconds_text(arm.step_s.value);
  });
  add("  95 % interval",
      [](const ArmResult& arm) { return interval_cell(arm.step_s, seconds_text); });
  add("tokens/s", [](const ArmResult& arm) {
    return std::isnan(arm.tokens_per_s) ? "-" : count_text(arm.tokens_per_s);
  });
  add("peak tensor bytes", [](const ArmResult& arm) { return bytes_text(arm.peak_total); });
  for (const char* category :
       {"weights", "gradients", "optimizer", "activations", "casts", "other"}) {
    add(concat("  ", category), [&](const ArmResult& arm) {
      const auto found = arm.peak_bytes.find(category);
      return found == arm.peak_bytes.end() ? std::string("-") : bytes_text(found->second);
    });
  }
  add("bytes a parameter",
      [](const ArmResult& arm) { return decimal_text(bytes_per_param(arm), 2); });
  add("validation, bits/base", [](const ArmResult& arm) { return bits(arm.bits_per_base); });
  add("best Markov model",
      [&](const ArmResult& arm) { return bits(summary(arm).markov_bits_per_base); });
  if (!std::isnan(study.options.target)) {
    add("to the target, steps",
        [](const ArmResult& arm) { return target_cell(arm, decimal_text(arm.target_step, 0)); });
    add("to the target, time",
        [](const ArmResult& arm) { return target_cell(arm, seconds_text(arm.target_s)); });
  }
  add("training time of a run", [](const ArmResult& arm) {
    return std::isnan(arm.training_s) ? "-" : seconds_text(arm.training_s);
  });
  if (!std::isnan(study.options.price_per_hour)) {
    if (!std::isnan(study.options.target)) {
      add("to the target, cost",
          [](const ArmResult& arm) { return target_cell(arm, cost_text(arm.target_cost)); });
    }
    add("cost of a run", [](const ArmResult& arm) { return cost_text(arm.cost); });
  }
  add("energy of a run", [](const ArmResult& arm) {
    return std::isnan(arm.energy_j) ? "not measured" : energy_text(arm.energy_j);
  });
  add("loss scale at the end",
      [&](const ArmResult& arm) { return scale_text(summary(arm).scale); });
  add("skipped steps", [](const ArmResult& arm) { return std::to_string(total_skipped(arm)); });
  return text_table(rows);
}

std::string curve_table(const Study& study) {
  constexpr size_t kMostRows = 8;
  std::set<int64_t> all;
  std::vector<std::vector<std::string>> rows = {{"validation after step"}};
  for (const ArmResult& arm : study.arms) {
    rows.front().push_back(arm.arm);
    for (const RunResult& run : arm.runs) {
      for (const record::Evaluation& evaluation : run.evaluations) {
        all.insert(evaluation.step);
      }
    }
  }
  if (all.empty()) {
    return "";
  }
  const std::vector<int64_t> steps(all.begin(), all.end());
  const size_t count = std::min(kMostRows, steps.size());
  for (size_t i = 1; i <= count; ++i) {
    const int64_t step = steps[i * steps.size() / count - 1];  // the last one is among them
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(std::to_string(step));
    for (const ArmResult& arm : study.arms) {
      double sum = 0;
      int64_t found = 0;
      for (const RunResult& run : arm.runs) {
        for (const record::Evaluation& evaluation : run.evaluations) {
          if (evaluation.step == step) {
            sum += evaluation.bits_per_base;
            ++found;
          }
        }
      }
      row.push_back(found == 0 ? "-" : bits(sum / static_cast<double>(found)));
    }
  }
  return text_table(rows);
}

std::string quality_line(const Study& study, const ArmResult& arm) {
  if (quality_verdict(arm) == QualityVerdict::failed) {
    return failure_text(arm);
  }
  if (!arm.is_validated) {
    return "not tested: nothing is held out (data.validation)";
  }
  if (!arm.quality) {
    return concat("not tested: one seed, ", signed_bits(arm.differences.front()),
                  " bits/base beside ", study.reference,
                  "; what another seed would change is not known, --seeds 5 tests it");
  }
  return equivalence_text(*arm.quality) +
         concat("; a difference of ", difference_text(arm.quality->detectable),
                " would be found in 4 of 5 comparisons with as many seeds");
}

std::string speed_line(const Study& study, const ArmResult& arm) {
  if (!arm.speed) {
    return concat("not compared: no slice of it was trained beside one of ", study.reference);
  }
  const std::string times = decimal_text(arm.speed->value, 2) + " times as fast";
  if (!has_interval(*arm.speed)) {
    return concat(times, ", of ", count_of(arm.pairs, "pair"),
                  " of slices: too few for an interval, which 6 have; use more seeds or a lower "
                  "train.checkpoint_every");
  }
  return concat(arm.speed->low > 1    ? "faster: "
                : arm.speed->high < 1 ? "slower: "
                                      : "neither faster nor slower: ",
                times, " (", range_text(*arm.speed), ", ", arm.pairs, " pairs of slices)");
}

// Also where it is not sure.
bool is_not_faster(const ArmResult& arm) {
  return arm.speed && !(has_interval(*arm.speed) ? arm.speed->low > 1 : arm.speed->value > 1);
}

std::string memory_line(const Study& study, const ArmResult& arm) {
  const ArmResult& reference = study.arm(study.reference);
  std::string line =
      concat("peak ", bytes_text(arm.peak_total), ", ", decimal_text(arm.memory, 2), " of that of ",
             study.reference, " (", bytes_text(reference.peak_total), ")");
  const auto most =
      std::max_element(arm.peak_holders.begin(), arm.peak_holders.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != arm.peak_holders.end()) {
    line += concat("; its largest part: ", most->first, ", ", bytes_text(most->second));
  }
  return line;
}

std::string target_line(const Study& study, const ArmResult& arm) {
  const auto time = [](const ArmResult& of) {
    return std::isfinite(of.target_s)
               ? concat("reached after ", seconds_text(of.target_s), " of training, step ",
                        decimal_text(of.target_step, 0))
               : std::string("not reached");
  };
  const ArmResult& reference = study.arm(study.reference);
  return concat(time(arm), " (", arm.reached, " of ", count_of(std::ssize(arm.runs), "run"), "); ",
                study.reference, " ", time(reference), " (", reference.reached, " of ",
                std::ssize(reference.runs), ")");
}

std::string verdict_text(const Study& study) {
  std::string text;
  for (const ArmResult& arm : study.arms) {
    if (arm.arm == study.reference) {
      continue;
    }
    text += concat(arm.arm, " beside ", study.reference, ": ", quality_word(arm), ", ",
                   speed_word(arm), ", ", memory_word(arm), "\n");
    text += concat("  quality: ", quality_line(study, arm), "\n");
    text += concat("  speed: ", speed_line(study, arm), "\n");
    if (is_not_faster(arm) && arm.facts) {
      text += concat("  why: ", to_string(judge_speed(*arm.facts)), "\n");
    }
    text += concat("  memory: ", memory_line(study, arm), "\n");
    if (!std::isnan(study.options.target)) {
      text += concat("  target ", short_text(study.options.target), ": ", target_line(study, arm),
                     "\n");
    }
    if (!std::isnan(study.options.price_per_hour)) {
      text += concat("  cost: ", cost_line(study, arm), "\n");
    }
    std::vector<record::Summary> both = {first_run(study.arm(study.reference)).summary,
                                         first_run(arm).summary};
    both[0].peak_bytes = study.arm(study.reference).peak_bytes;
    both[1].peak_bytes = arm.peak_bytes;
    text += larger_lines(both);
  }
  const bool is_measured =
      std::any_of(study.arms.begin(), study.arms.end(),
                  [](const ArmResult& arm) { return !std::isnan(arm.energy_j); });
  if (!is_measured) {
    const std::string& problem = study.options.energy_problem;
    text += concat("energy: not measured (", problem.empty() ? "not in these turns" : problem,
                   "); --watts tells the power of the machine\n");
  } else if (!std::isnan(study.options.watts)) {
    text +=
        concat("energy: ", short_text(study.options.watts), " W as given, over training time\n");
  } else {
    std::string of;
    for (const std::string& counted : study.energy_of) {
      of += concat(of.empty() ? "" : " in some turns, in others of ", counted);
    }
    text += concat("energy: of ", of,
                   ", with validations, checkpoints and all else that ran; that of the processor's "
                   "memory is not in it\n");
  }
  text +=
      "training time: of the steps, each with the median of its run; validations and checkpoints "
      "are not in it\n";
  return text;
}

}  // namespace mantissa::report
