#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mantissa::nan_benchmark {

/// The first steps of a recipe, which are healthy, with everything looking.
struct RecipeRun {
  std::string recipe;
  std::string precision;
  std::string alarm;    // empty: none
  std::string skipped;  // why it was not run; empty: it was
};

/// Every recipe of `folder`, in FP32, BF16 and FP16, on the genome `fasta` and with batches of two.
/// One whose step would take more than `memory_bytes`, by train::footprint, is not run.
std::vector<RecipeRun> run_recipes(const std::string& folder, const std::string& fasta,
                                   int64_t memory_bytes);

}  // namespace mantissa::nan_benchmark
