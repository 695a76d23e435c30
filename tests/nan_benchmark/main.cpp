// nan_benchmark: small steps that fail, what finds the fault, and what cures it. See
// docs/nan-benchmark.md.
#include <exception>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/glob.h"
#include "mantissa/train/run_config.h"
#include "table.h"

namespace mantissa::nan_benchmark {
namespace {

constexpr int kWrongUsage = 2;
constexpr int kMissedBar = 3;

struct Options {
  std::string truth;
  std::string recipes = MANTISSA_SOURCE_DIR "/recipes";
  std::string fasta = MANTISSA_SOURCE_DIR "/data/lambda.fa";
  std::string memory = "4GB";
  std::string only = "*";
  std::string page;
  bool held_out = false;
  bool json = false;
};

std::string truth_of(const Options& options) {
  if (!options.truth.empty()) {
    return options.truth;
  }
  return concat(MANTISSA_SOURCE_DIR "/tests/nan_benchmark/",
                options.held_out ? "held_out.json" : "truth.json");
}

std::vector<Score> score_all(const Options& options) {
  const std::string file = truth_of(options);
  std::map<std::string, Truth> truths;
  for (const Truth& truth : read_truths(file)) {
    truths.emplace(truth.name, truth);
  }
  std::vector<Score> scores;
  for (const Case& given : options.held_out ? held_out_cases() : all_cases()) {
    const auto found = truths.find(given.name);
    MANTISSA_CHECK(found != truths.end(), InvalidArgument, "nan_benchmark: ", file,
                   " has no entry \"", given.name, "\"; add what is true of that case");
    if (glob_match(options.only, given.name)) {
      scores.push_back(score(given, found->second));
    }
    truths.erase(found);
  }
  MANTISSA_CHECK(truths.empty(), InvalidArgument, "nan_benchmark: ", file, " has \"",
                 truths.begin()->first, "\", which is no case; remove it");
  MANTISSA_CHECK(!scores.empty(), InvalidArgument, "nan_benchmark: --only ", options.only,
                 " matches no case");
  return scores;
}

// The page shows the table as it is.
void check_page(const std::string& page, const std::string& table) {
  MANTISSA_CHECK(read_file(page).find(table) != std::string::npos, InvalidArgument, page,
                 ": does not hold the table of now; put this in its place:\n", table);
}

int run(const Options& options) {
  at::set_num_threads(1);
  const std::optional<int64_t> memory = train::parse_bytes(options.memory);
  MANTISSA_CHECK(memory, InvalidArgument, "nan_benchmark: --memory is \"", options.memory,
                 "\"; valid: a number and B, kB, MB, GB, such as 4GB");
  const bool is_whole = options.only == "*" && !options.held_out;
  Result result{score_all(options), {}};
  if (is_whole) {
    result.recipes = run_recipes(options.recipes, options.fasta, *memory);
  }
  if (options.json) {
    std::cout << to_json(result) << "\n";
  } else {
    print_cases(std::cout, result.scores);
    print_totals(std::cout, result);
  }
  if (!options.page.empty()) {
    check_page(options.page, totals_by_kind(result.scores));
  }
  std::vector<std::string> missed;
  if (!options.held_out) {  // the page holds what it is of those
    missed = missed_bars(totals(result.scores));
  }
  int64_t num_run = 0;
  for (const RecipeRun& one : result.recipes) {
    num_run += one.skipped.empty() ? 1 : 0;
    if (!one.alarm.empty()) {
      missed.push_back(concat("a false alarm on ", one.recipe, " in ", one.precision));
    }
  }
  if (is_whole && num_run == 0) {
    missed.emplace_back("no recipe was run, so that nothing is known of alarms on them");
  }
  for (const std::string& line : missed) {
    std::cerr << "nan_benchmark: " << line << "\n";
  }
  return missed.empty() ? 0 : kMissedBar;
}

int parse_and_run(int argc, char** argv) {
  Options options;
  CLI::App app("Small steps that fail: is the fault named, is it cured, is nothing else blamed?");
  app.add_option("--only", options.only, "cases whose names match this glob; recipes are left out")
      ->capture_default_str();
  app.add_flag("--held-out", options.held_out,
               "cases that nothing was tuned on before their first run; no bars, no recipes");
  app.add_option("--truth", options.truth, "what is true of each case");
  app.add_option("--recipes", options.recipes, "folder of run files that are healthy");
  app.add_option("--memory", options.memory, "recipes whose step takes more are not run")
      ->capture_default_str();
  app.add_option("--fasta", options.fasta, "the genome that recipes are run on");
  app.add_option("--check-page", options.page, "a page that must hold the table of totals");
  app.add_flag("--json", options.json, "one JSON object in place of the table");
  app.footer("Exit code 3: a bar is missed; which one is said.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  return run(options);
}

}  // namespace
}  // namespace mantissa::nan_benchmark

int main(int argc, char** argv) {
  try {
    return mantissa::nan_benchmark::parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
