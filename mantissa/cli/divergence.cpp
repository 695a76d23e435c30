#include "mantissa/cli/divergence.h"

#include <cmath>
#include <iostream>

namespace mantissa::cli {

bool report_divergence(const train::RunConfig& config, const train::LoopOutcome& outcome,
                       const std::filesystem::path& folder) {
  if (outcome.ending != train::Ending::interrupted && outcome.summary.steps > 0 &&
      outcome.summary.skipped_steps == outcome.summary.steps) {
    std::cerr
        << "mantissa: all " << outcome.summary.steps
        << " steps were skipped, so nothing was trained; start with a lower scale.initial, or "
           "see "
        << (folder / "record.jsonl").string() << "\n";
    return true;
  }
  if (config.data.validation.empty() || std::isfinite(outcome.summary.bits_per_base) ||
      outcome.summary.steps == 0 || outcome.ending == train::Ending::interrupted) {
    return false;
  }
  std::cerr << "mantissa: the last validation is " << outcome.summary.bits_per_base
            << ": the run diverged; mantissa inspect --blame and --recommend find the step, the "
               "operation "
               "and what cures it, or lower optim.lr; see "
            << (folder / "record.jsonl").string() << "\n";
  return true;
}

}  // namespace mantissa::cli
