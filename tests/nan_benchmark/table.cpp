#include "table.h"

#include <algorithm>
#include <iomanip>
#include <ostream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"

namespace mantissa::nan_benchmark {
namespace {

using nlohmann::ordered_json;

std::string place(const Truth& truth) {
  return concat(truth.finding, ": ", truth.is_cast ? "a cast within " : "", truth.operation, " (",
                truth.pass == "backward" ? "backward of " : "", truth.scope, ")");
}

std::string share(int64_t part, int64_t all) { return concat(part, " of ", all); }

std::vector<std::string> kinds_of(const std::vector<Score>& scores) {
  std::vector<std::string> kinds;
  for (const Score& score : scores) {
    if (std::find(kinds.begin(), kinds.end(), score.truth.kind) == kinds.end()) {
      kinds.push_back(score.truth.kind);
    }
  }
  return kinds;
}

std::string row(const std::string& kind, const Totals& of) {
  return concat("| ", kind, " | ", of.cases, " | ", of.exact, " | ", share(of.cured, of.curable),
                " | ", share(of.minimal, of.curable_by_keep), " | ",
                share(of.said_so, of.incurable), " | ", of.alarms, " |\n");
}

double overhead(const std::vector<Score>& scores) {
  double plain = 0;
  double traced = 0;
  for (const Score& score : scores) {
    plain += score.plain_s;
    traced += score.traced_s;
  }
  return plain > 0 ? traced / plain : 0;
}

ordered_json json_of(const Score& score) {
  const Truth& truth = score.truth;
  return {
      {"name", truth.name},        {"kind", truth.kind},          {"truth", place(truth)},
      {"named", score.named},      {"exact", score.is_exact},     {"curable", score.is_curable()},
      {"cured", score.is_cured},   {"minimal", score.is_minimal}, {"cure", score.cure},
      {"alarm", score.alarm},      {"failure", score.failure},    {"plain_s", score.plain_s},
      {"traced_s", score.traced_s}};
}

}  // namespace

void print_cases(std::ostream& out, const std::vector<Score>& scores) {
  for (const Score& score : scores) {
    out << std::left << std::setw(40) << score.truth.name
        << (score.is_exact ? " named  " : " WRONG  ") << place(score.truth) << "\n";
    if (!score.is_exact) {
      out << "    named:   " << score.named << "\n";
    }
    out << (score.is_cured ? "    cure:    " : "    NO CURE: ") << score.cure << "\n";
    if (!score.alarm.empty()) {
      out << "    ALARM:   " << score.alarm << "\n";
    }
    if (!score.failure.empty()) {
      out << "    CASE:    " << score.failure << "\n";
    }
  }
}

std::string totals_by_kind(const std::vector<Score>& scores) {
  std::string table =
      "| kind | cases | named exactly | cured, of the curable | with the least in FP32 | "
      "said to be incurable | false alarms |\n| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const std::string& kind : kinds_of(scores)) {
    std::vector<Score> some;
    std::copy_if(scores.begin(), scores.end(), std::back_inserter(some),
                 [&](const Score& score) { return score.truth.kind == kind; });
    table += row(kind, totals(some));
  }
  return table + row("all", totals(scores));
}

void print_totals(std::ostream& out, const Result& result) {
  out << "\n" << totals_by_kind(result.scores);
  for (const RecipeRun& run : result.recipes) {
    out << run.recipe << " in " << run.precision << ": "
        << (!run.skipped.empty() ? "not run: " + run.skipped
            : run.alarm.empty()  ? "no alarm"
                                 : run.alarm)
        << "\n";
  }
  out << "a step that is looked at takes " << std::setprecision(2) << overhead(result.scores)
      << " times as long\n";
}

std::string to_json(const Result& result) {
  ordered_json cases = ordered_json::array();
  for (const Score& score : result.scores) {
    cases.push_back(json_of(score));
  }
  ordered_json recipes = ordered_json::array();
  for (const RecipeRun& run : result.recipes) {
    recipes.push_back({{"recipe", run.recipe},
                       {"precision", run.precision},
                       {"alarm", run.alarm},
                       {"skipped", run.skipped}});
  }
  const Totals sum = totals(result.scores);
  const ordered_json all = {{"cases", sum.cases},
                            {"exact", sum.exact},
                            {"curable", sum.curable},
                            {"cured", sum.cured},
                            {"incurable", sum.incurable},
                            {"said_so", sum.said_so},
                            {"curable_by_keep", sum.curable_by_keep},
                            {"minimal", sum.minimal},
                            {"alarms", sum.alarms},
                            {"overhead", overhead(result.scores)}};
  return ordered_json({{"cases", cases}, {"recipes", recipes}, {"totals", all}}).dump();
}

}  // namespace mantissa::nan_benchmark
