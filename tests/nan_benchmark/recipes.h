#pragma once

#include <string>
#include <vector>

namespace mantissa::nan_benchmark {

/// The first steps of a recipe, which are healthy, with everything looking.
struct RecipeRun {
  std::string recipe;
  std::string precision;
  std::string alarm;  // empty: none
};

/// Every recipe of `folder`, in FP32, BF16 and FP16, on the genome `fasta` and with batches of two.
std::vector<RecipeRun> run_recipes(const std::string& folder, const std::string& fasta);

}  // namespace mantissa::nan_benchmark
