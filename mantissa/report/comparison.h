#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/record/event.h"

namespace mantissa::report {

/// One figure that runs are compared by.
struct Figure {
  std::string name;
  std::function<std::string(const record::Summary&)> text;  // "-": not known
  /// Nothing when it is not known; none at all for a figure that is a text.
  std::function<std::optional<double>(const record::Summary&)> number;
  bool is_part = false;  // of the figure before it that is none
};

/// In the order in which people ask for them.
MANTISSA_API std::vector<Figure> comparison_figures();

/// Runs of the same model, data and seed in several precisions as a text table: a column a run, a
/// row a figure: steps (and whether patience ended them), median step time, tokens/s, peak tensor
/// bytes by category, validation bits per base beside the Markov baseline, last scale, skipped
/// steps. Throws InvalidArgument when the runs differ in seed or number of parameters: they could
/// not be compared.
MANTISSA_API std::string comparison_table(const std::vector<record::Summary>& runs);

/// A line for each run whose measured steps are slower than those of the FP32 run beside it, by
/// more than 2 %; empty when there are none or no FP32 run is there.
MANTISSA_API std::string slower_lines(const std::vector<record::Summary>& runs);

/// For each run whose peak is above that of the FP32 run beside it a line, and one for each cause
/// that is known: the 16-bit copies that a region keeps of FP32 weights, and replays of skipped
/// steps. Empty when there are none.
MANTISSA_API std::string larger_lines(const std::vector<record::Summary>& runs);

}  // namespace mantissa::report
