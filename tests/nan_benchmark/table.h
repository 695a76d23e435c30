#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "recipes.h"
#include "score.h"

namespace mantissa::nan_benchmark {

struct Result {
  std::vector<Score> scores;
  std::vector<RecipeRun> recipes;
};

/// A line a case: what is true, what was named, what cures it.
void print_cases(std::ostream& out, const std::vector<Score>& scores);

/// Counts by kind of failure, in Markdown: the table of docs/nan-benchmark.md.
std::string totals_by_kind(const std::vector<Score>& scores);

void print_totals(std::ostream& out, const Result& result);

/// One object: `cases`, `recipes`, `totals`, `missed`.
std::string to_json(const Result& result);

}  // namespace mantissa::nan_benchmark
