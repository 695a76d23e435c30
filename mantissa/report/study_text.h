#pragma once

#include <string>

#include "mantissa/base/api.h"
#include "mantissa/report/study.h"

namespace mantissa::report {

/// A column an arm, a row a figure. Step time with its interval, tokens/s, peak by category, last
/// validation as mean over seeds beside the Markov baseline, scale, skipped steps, and what was
/// asked for: time and cost to the target, cost and energy of a run.
MANTISSA_API std::string study_table(const Study& study);

/// Validation by step, bits per base, mean over seeds: a column an arm, at most eight rows. Empty
/// when nothing was validated.
MANTISSA_API std::string curve_table(const Study& study);

/// Each arm beside the reference in plain words: a headline, then its reasons, a line each, with
/// what cannot be known.
MANTISSA_API std::string verdict_text(const Study& study);

/// The reasons alone, as in verdict_text.
MANTISSA_API std::string quality_line(const Study& study, const ArmResult& arm);
MANTISSA_API std::string speed_line(const Study& study, const ArmResult& arm);
MANTISSA_API std::string memory_line(const Study& study, const ArmResult& arm);
MANTISSA_API std::string target_line(const Study& study, const ArmResult& arm);

}  // namespace mantissa::report
