#include <set>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/scratch_folder.h"
#include "recipes.h"
#include "score.h"

namespace mantissa::nan_benchmark {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

const char* const kTruths = MANTISSA_SOURCE_DIR "/tests/nan_benchmark/truth.json";

Case case_named(const std::string& name) {
  for (const Case& one : all_cases()) {
    if (one.name == name) {
      return one;
    }
  }
  throw InvalidArgument("no case " + name);
}

Truth truth_named(const std::string& name) {
  for (const Truth& one : read_truths(kTruths)) {
    if (one.name == name) {
      return one;
    }
  }
  throw InvalidArgument("no truth " + name);
}

TEST(NanBenchmark, HasTwoHundredCasesEachWithOneTruth) {
  std::set<std::string> cases;
  for (const Case& one : all_cases()) {
    EXPECT_TRUE(cases.insert(one.name).second) << one.name << " is there twice";
  }
  std::set<std::string> truths;
  for (const Truth& one : read_truths(kTruths)) {
    truths.insert(one.name);
  }
  EXPECT_EQ(cases, truths);
  EXPECT_GE(cases.size(), 200U);
}

TEST(NanBenchmark, HasHeldOutCasesOfNoNameThatTheOthersHave) {
  std::set<std::string> names;
  for (const Case& one : all_cases()) {
    names.insert(one.name);
  }
  for (const Case& one : held_out_cases()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name << " is there twice";
  }
  EXPECT_GE(held_out_cases().size(), 40U);
}

TEST(NanBenchmark, NamesAndCuresACase) {
  const Score of = score(case_named("softmax_by_hand"), truth_named("softmax_by_hand"));
  EXPECT_TRUE(of.is_exact) << of.named;
  EXPECT_TRUE(of.is_cured && of.is_minimal) << of.cure;
  EXPECT_EQ(of.named, "nonfinite: aten::exp (attention.weights)");
  EXPECT_THAT(of.alarm, IsEmpty());
  EXPECT_THAT(of.failure, IsEmpty());
}

TEST(NanBenchmark, EachPartOfTheTruthCounts) {
  const Case given = case_named("linear_operand_cast");
  const Truth truth = truth_named("linear_operand_cast");
  EXPECT_TRUE(score(given, truth).is_exact);
  const auto is_exact_with = [&](const std::function<void(Truth&)>& change) {
    Truth other = truth;
    change(other);
    return score(given, other).is_exact;
  };
  EXPECT_FALSE(is_exact_with([](Truth& other) { other.operation = "aten::mm"; }));
  EXPECT_FALSE(is_exact_with([](Truth& other) { other.scope = "encoder"; }));
  EXPECT_FALSE(is_exact_with([](Truth& other) { other.pass = "backward"; }));
  EXPECT_FALSE(is_exact_with([](Truth& other) { other.is_cast = false; }));
  EXPECT_FALSE(is_exact_with([](Truth& other) { other.finding = "given"; }));
}

TEST(NanBenchmark, ACureThatIsNoneAndOneThatIsMissedCount) {
  const Case log = case_named("log_of_zero");
  Truth truth = truth_named("log_of_zero");
  EXPECT_TRUE(score(log, truth).is_cured);  // said to be incurable
  truth.cure = {"bf16"};
  EXPECT_FALSE(score(log, truth).is_cured);
  Truth curable = truth_named("exp");
  curable.cure = {};
  curable.keep = {};
  EXPECT_FALSE(score(case_named("exp"), curable).is_cured);
}

TEST(NanBenchmark, AnAlarmOnTheTwinAndACaseThatDoesNotFailAreSeen) {
  const Truth truth = truth_named("exp");
  Case twins = case_named("exp");
  twins.healthy = twins.faulty;
  EXPECT_THAT(score(twins, truth).alarm, HasSubstr("aten::exp"));
  Case harmless = case_named("exp");
  harmless.faulty = harmless.healthy;
  EXPECT_EQ(score(harmless, truth).failure, "the faulty step is finite");
}

TEST(NanBenchmark, SaysWhichBarIsMissed) {
  Totals all{.cases = 100,
             .exact = 95,
             .curable = 10,
             .cured = 9,
             .incurable = 10,
             .said_so = 9,
             .minimal = 9,
             .curable_by_keep = 10};
  EXPECT_THAT(missed_bars(all), IsEmpty());
  all.exact = 94;
  all.alarms = 1;
  all.failures = 2;
  EXPECT_THAT(missed_bars(all),
              ElementsAre("94 of 100 named exactly, less than 95 %",
                          "1 false alarms, more than none", "2 cases do not fail as they claim"));
}

TEST(NanBenchmark, ARecipeThatTakesTooMuchMemoryIsNotRunAndSaysWhy) {
  const ScratchFolder folder;
  folder.write("lambda.toml", read_file(MANTISSA_SOURCE_DIR "/recipes/lambda.toml"));
  for (const RecipeRun& run : run_recipes(folder.path(), "absent.fa", 1000)) {
    EXPECT_THAT(run.skipped, MatchesRegex("a step takes [0-9.]+ MB, more than 1.00 kB"))
        << run.precision;
    EXPECT_EQ(run.alarm, "");
  }
  EXPECT_THAT(
      message_of<IoError>([&] { (void)run_recipes(folder.path(), "absent.fa", int64_t{1} << 40); }),
      HasSubstr("absent.fa"))
      << "what fits is run";
}

TEST(NanBenchmark, ATruthThatIsNoneIsRefusedByName) {
  const ScratchFolder folder;
  const auto refusal = [&](const std::string& text) {
    const auto path = folder.path() / "truth.json";
    replace_file(path, text);
    return message_of<Corruption>([&] { (void)read_truths(path); });
  };
  const std::string head = R"({"cases": [{"name": "a", "kind": "k", "policy": "fp32",
    "finding": "nonfinite", "pass": "forward", "operation": "aten::mm", "scope": "s", "cure": [])";
  EXPECT_THAT(refusal(head + R"(, "why": ""}]})"), HasSubstr(": a: no reason"));
  EXPECT_THAT(refusal(head + R"(, "why": "w", "wy": 1}]})"), HasSubstr(": a: unknown key \"wy\""));
  EXPECT_THAT(refusal(head + R"(, "why": "w", "keep": ["mm"]}]})"),
              HasSubstr(": a: \"keep\" lists 1 operations"));
  EXPECT_THAT(refusal("{"), HasSubstr("truth.json: "));
}

}  // namespace
}  // namespace mantissa::nan_benchmark
