#include "mantissa/report/attribution.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "mantissa/base/error.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/text_table.h"

namespace mantissa::report {
namespace {

// What was measured side by side: a seed, and for a slice its turn.
using Place = std::tuple<int64_t, SliceTime>;
using Times = std::map<Place, double>;

Times step_times(const ArmResult& arm) {
  Times times;
  for (const RunResult& run : arm.runs) {
    for (const SliceTime& slice : run.slices) {
      SliceTime turn = slice;
      turn.step_s = 0;
      if (std::isfinite(slice.step_s)) {
        times[{run.seed, turn}] = slice.step_s;
      }
    }
  }
  return times;
}

Times target_times(const ArmResult& arm) {
  Times times;
  for (const RunResult& run : arm.runs) {
    if (std::isfinite(run.target_s)) {
      SliceTime turn;
      turn.step_s = 0;
      times[{run.seed, turn}] = run.target_s;
    }
  }
  return times;
}

// Cells whose times stand above the line, and below it.
struct Terms {
  std::vector<std::string> over;
  std::vector<std::string> under;
};

// One ratio for each place that all cells have.
std::vector<double> ratios(const Study& study, const Terms& terms,
                           const std::function<Times(const ArmResult&)>& times_of) {
  std::vector<std::pair<Times, bool>> cells;
  for (const std::string& arm : terms.over) {
    cells.emplace_back(times_of(study.arm(arm)), true);
  }
  for (const std::string& arm : terms.under) {
    cells.emplace_back(times_of(study.arm(arm)), false);
  }
  std::vector<double> result;
  for (const auto& [place, unused] : cells.front().first) {
    double ratio = 1;
    bool is_whole = true;
    for (const auto& [times, is_over] : cells) {
      const auto found = times.find(place);
      is_whole = is_whole && found != times.end();
      if (is_whole) {
        ratio *= is_over ? found->second : 1 / found->second;
      }
    }
    if (is_whole) {
      result.push_back(ratio);
    }
  }
  return result;
}

Effect effect_of(const Study& study, const std::string& factor, const std::string& text,
                 const Terms& terms) {
  Effect effect;
  effect.factor = factor;
  effect.text = text;
  const std::vector<double> speeds = ratios(study, terms, step_times);
  effect.speed = median_of(speeds);
  effect.rounds = std::ssize(speeds);
  const std::vector<double> targets = ratios(study, terms, target_times);
  effect.target = median_of(targets);
  effect.seeds = std::ssize(targets);
  return effect;
}

// Values in the order in which they first come.
std::vector<std::string> each_once(const std::vector<AttributionCell>& cells,
                                   std::string AttributionCell::*value) {
  std::vector<std::string> values;
  for (const AttributionCell& cell : cells) {
    if (std::find(values.begin(), values.end(), cell.*value) == values.end()) {
      values.push_back(cell.*value);
    }
  }
  return values;
}

const std::string& arm_at(const std::vector<AttributionCell>& cells, const std::string& format,
                          const std::string& microbatch) {
  const auto found = std::find_if(cells.begin(), cells.end(), [&](const AttributionCell& cell) {
    return cell.format == format && cell.microbatch == microbatch;
  });
  MANTISSA_ASSERT(found != cells.end());
  return found->arm;
}

// `auto` with the number that it was.
std::string microbatch_text(const Study& study, const std::vector<AttributionCell>& cells,
                            const std::string& format, const std::string& microbatch) {
  const ArmResult& arm = study.arm(arm_at(cells, format, microbatch));
  const int64_t number = arm.runs.front().microbatch;
  return microbatch == std::to_string(number) || number == 0
             ? microbatch
             : concat(microbatch, " (", number, ")");
}

double median_over(const ArmResult& arm, const std::function<double(const RunResult&)>& value) {
  std::vector<double> values;
  for (const RunResult& run : arm.runs) {
    if (const double each = value(run); run.failure.empty() && !std::isnan(each)) {
      values.push_back(each);
    }
  }
  return median_of(values).value;
}

Stopping stopping_of(const ArmResult& arm) {
  Stopping stopping;
  stopping.arm = arm.arm;
  stopping.step =
      median_over(arm, [](const RunResult& run) { return static_cast<double>(run.stop_step); });
  stopping.last_step =
      median_over(arm, [](const RunResult& run) { return static_cast<double>(run.summary.steps); });
  stopping.speed =
      median_over(arm, [](const RunResult& run) { return run.training_s / run.stop_s; });
  stopping.difference =
      median_over(arm, [](const RunResult& run) { return run.stop_bits - run.best_bits; });
  return stopping;
}

std::string interval_text(const Estimate& estimate) {
  return std::isnan(estimate.low)
             ? "-"
             : concat(decimal_text(estimate.low, 2), " to ", decimal_text(estimate.high, 2));
}

std::string seconds_or(double seconds, const char* otherwise) {
  return std::isfinite(seconds) ? seconds_text(seconds) : otherwise;
}

// Half of the runs or more did not reach it before they would have ended: they do not.
double target_with_patience(const ArmResult& arm) {
  std::vector<double> times;
  for (const RunResult& run : arm.runs) {
    const bool is_reached = run.target_step >= 0 && run.target_step <= run.stop_step;
    times.push_back(is_reached ? run.target_s : std::numeric_limits<double>::infinity());
  }
  return median_of(times).value;
}

std::string cell_table(const Study& study, const std::vector<AttributionCell>& cells) {
  const bool has_target = !std::isnan(study.options.target);
  const bool has_patience = study.options.patience > 0;
  const std::string with = concat("with patience ", study.options.patience);
  std::vector<std::vector<std::string>> rows = {{"what did it", "time a token", "95 % interval"}};
  const auto head = [&](const char* what) {
    rows.front().emplace_back(what);
    if (has_patience) {
      rows.front().push_back(with);
    }
  };
  if (has_target) {
    head("to the target");
  }
  head("time of a run");
  for (const AttributionCell& cell : cells) {
    const ArmResult& arm = study.arm(cell.arm);
    const double tokens = arm.tokens_per_s * arm.step_s.value;  // of a step
    std::vector<std::string>& row = rows.emplace_back();
    row = {cell.arm, seconds_or(arm.step_s.value / tokens, "-"),
           std::isnan(arm.step_s.low) ? "-"
                                      : concat(seconds_text(arm.step_s.low / tokens), " to ",
                                               seconds_text(arm.step_s.high / tokens))};
    if (has_target) {
      row.push_back(seconds_or(arm.target_s, "not reached"));
      if (has_patience) {
        row.push_back(seconds_or(target_with_patience(arm), "not reached"));
      }
    }
    row.push_back(seconds_or(arm.training_s, "-"));
    if (has_patience) {
      row.push_back(
          seconds_or(median_over(arm, [](const RunResult& run) { return run.stop_s; }), "-"));
    }
  }
  return text_table(rows);
}

std::string effect_table(const Study& study, const Attribution& attribution) {
  const bool has_target = !std::isnan(study.options.target);
  std::vector<std::vector<std::string>> rows = {
      {"times as fast", "time a token", "95 % interval", "rounds"}};
  if (has_target) {
    rows.front().insert(rows.front().end(), {"to the target", "95 % interval", "seeds"});
  }
  for (const Effect& effect : attribution.effects) {
    std::vector<std::string>& row = rows.emplace_back();
    row = {concat(effect.factor, ": ", effect.text), decimal_text(effect.speed.value, 2),
           interval_text(effect.speed), std::to_string(effect.rounds)};
    if (has_target) {
      row.insert(row.end(), {decimal_text(effect.target.value, 2), interval_text(effect.target),
                             std::to_string(effect.seeds)});
    }
  }
  return text_table(rows);
}

}  // namespace

Attribution attribute(const Study& study, const std::vector<AttributionCell>& cells) {
  const std::vector<std::string> formats = each_once(cells, &AttributionCell::format);
  const std::vector<std::string> microbatches = each_once(cells, &AttributionCell::microbatch);
  const std::string& format = formats.front();
  const std::string& small = microbatches.front();
  const std::string& base = arm_at(cells, format, small);
  const auto named = [&](const std::string& of, const std::string& microbatch) {
    return microbatch_text(study, cells, of, microbatch);
  };
  Attribution result;
  for (size_t m = 1; m < microbatches.size(); ++m) {
    const std::string& large = microbatches[m];
    result.effects.push_back(
        effect_of(study, "microbatch",
                  concat(named(format, large), " for ", named(format, small), ", in ", format),
                  {{base}, {arm_at(cells, format, large)}}));
  }
  for (size_t f = 1; f < formats.size(); ++f) {
    const std::string& other = formats[f];
    const std::string& other_small = arm_at(cells, other, small);
    result.effects.push_back(effect_of(
        study, "format",
        concat(other, " for ", format,
               microbatches.size() > 1 ? concat(", at microbatch ", named(other, small)) : ""),
        {{base}, {other_small}}));
    for (size_t m = 1; m < microbatches.size(); ++m) {
      const std::string& large = microbatches[m];
      const std::string& both = arm_at(cells, other, large);
      result.effects.push_back(effect_of(
          study, "interaction",
          concat("microbatch ", named(other, large), " in ", other, " over that in ", format),
          {{arm_at(cells, format, large), other_small}, {both, base}}));
      result.effects.push_back(effect_of(
          study, "together",
          concat(other, " at ", named(other, large), " for ", format, " at ", named(format, small)),
          {{base}, {both}}));
    }
  }
  if (study.options.patience > 0) {
    for (const AttributionCell& cell : cells) {
      result.stopping.push_back(stopping_of(study.arm(cell.arm)));
    }
  }
  return result;
}

std::string attribution_text(const Study& study, const std::vector<AttributionCell>& cells,
                             const Attribution& attribution, int64_t batch) {
  std::string text = cell_table(study, cells) + "\n";
  if (!attribution.effects.empty()) {
    text += effect_table(study, attribution) + "\n";
  }
  for (const Stopping& stopping : attribution.stopping) {
    text += concat("early stopping: ", stopping.arm, ": patience ", study.options.patience);
    text +=
        stopping.step < stopping.last_step
            ? concat(" ends at step ", decimal_text(stopping.step, 0), " of ",
                     decimal_text(stopping.last_step, 0), ", a run ",
                     decimal_text(stopping.speed, 2), " times as short, its best validation by ",
                     decimal_text(stopping.difference, 4), " bits/base worse")
            : concat(" does not end it before step ", decimal_text(stopping.last_step, 0));
    text += "\n";
  }
  text += concat("effective batch: ", batch,
                 " sequences in each run, whatever the microbatch, so the learning rate stays; a "
                 "larger one asks for another: in proportion with SGD (Goyal et al. 2017), by its "
                 "square root with Adam (Malladi et al. 2022)\n");
  text += "ranks: one in each run; what more of them do is not measured\n";
  return text;
}

}  // namespace mantissa::report
