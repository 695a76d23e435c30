#include "mantissa/report/run.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/scratch_folder.h"
#include "mantissa/report/run_testing.h"

namespace mantissa::report {
namespace {

using ::testing::HasSubstr;

std::string lines(const std::string& fasta = "/data/lambda.fa") {
  record::RunStart start;
  start.config = "[data]\nfasta = '" + fasta + "'\nvalidation = ['c:1-5', 'd:2-3']\n" +
                 "[train]\nseed = 4\n[precision]\ncompute = \"fp16\"\n";
  record::Step step;
  step.step = 1;
  step.step_time_s = 0.5;
  step.peak_bytes = 70;
  return record::to_json({10.0, start}) + "\n" + record::to_json({12.5, step}) + "\n";
}

TEST(ReadRuns, ReadsARecordAFolderAndAFolderOfFolders) {
  const ScratchFolder folder;
  folder.write("c/fp32/record.jsonl", lines());
  folder.write("c/run-10/record.jsonl", lines());
  folder.write("c/run-9/record.jsonl", lines());
  folder.write("c/notes/text", "");
  folder.write("other.jsonl", lines());
  const Runs runs = read_runs({folder / "c", folder / "other.jsonl"});
  ASSERT_EQ(runs.runs.size(), 4U);
  EXPECT_EQ(runs.runs[0].name, "fp32");
  EXPECT_EQ(runs.runs[1].name, "run-9");
  EXPECT_EQ(runs.runs[2].name, "run-10");
  EXPECT_EQ(runs.runs[3].name, "other.jsonl");
  EXPECT_TRUE(runs.warnings.empty());
  const report::Run& run = runs.runs[0];
  EXPECT_EQ(run.settings.at("precision.compute"), "fp16");
  EXPECT_EQ(run.settings.at("train.seed"), "4");
  EXPECT_THAT(run.settings.at("data.validation"), HasSubstr("c:1-5"));
  EXPECT_EQ(run.started_s, 10);
  EXPECT_EQ(run.last_s, 12.5);
  EXPECT_EQ(run.steps.size(), 1U);
}

TEST(ReadRuns, NamesAreAsShortAsTheyCanBeAndDiffer) {
  const ScratchFolder folder;
  folder.write("a/fp32/record.jsonl", lines());
  folder.write("b/fp32/record.jsonl", lines());
  folder.write("b/bf16/record.jsonl", lines());
  const Runs runs = read_runs({folder / "a/fp32/", folder / "b/./fp32", folder / "b/bf16"});
  EXPECT_EQ(runs.runs[0].name, "a/fp32");
  EXPECT_EQ(runs.runs[1].name, "b/fp32");
  EXPECT_EQ(runs.runs[2].name, "bf16");
}

TEST(ReadRuns, TheFolderOfAComparisonIsItsRuns) {
  const ScratchFolder folder;
  for (const char* run : {"bf16/seed-1", "bf16/seed-2", "fp32/seed-1"}) {
    folder.write(concat("c/", run, "/record.jsonl"), lines());
  }
  folder.write("c/comparison.json", "{}");
  const Runs runs = read_runs({folder / "c"});
  ASSERT_EQ(runs.runs.size(), 3U);
  EXPECT_EQ(runs.runs[0].record, folder / "c/bf16/seed-1/record.jsonl");
  EXPECT_EQ(runs.runs[2].record, folder / "c/fp32/seed-1/record.jsonl");
}

TEST(ReadRuns, ACutLastLineIsLeftOutWithAWarning) {
  const ScratchFolder folder;
  folder.write("a/record.jsonl", lines() + "{\"schema\":1,");
  const Runs runs = read_runs({folder / "a"});
  EXPECT_EQ(runs.runs[0].steps.size(), 1U);
  EXPECT_THAT(runs.warnings, ::testing::ElementsAre(
                                 HasSubstr("the last line, 12 bytes, has no end and is left out")));
}

TEST(ReadRuns, SaysInOneLineWhatIsWrong) {
  const ScratchFolder folder;
  folder.write("empty/record.jsonl", "");
  folder.write("cut/record.jsonl", "{\"schema\"");
  folder.write("damaged/record.jsonl", lines() + "{\"schema\":1}\n" + lines());
  folder.write("later/record.jsonl", "{\"schema\":2,\"time_s\":1.0,\"type\":\"x\"}\n");
  folder.write("none/run.toml", "");
  folder.write("good/record.jsonl", lines());
  const auto message = [&]<typename Kind>(const char* name, Kind*) {
    return message_of<Kind>([&] { read_runs({folder / name}); });
  };
  EXPECT_THAT(message("missing", static_cast<IoError*>(nullptr)), HasSubstr("No such file"));
  EXPECT_THAT(message("none", static_cast<IoError*>(nullptr)),
              HasSubstr("holds no run (no record.jsonl); name the folder that --out named"));
  for (const char* name : {"empty", "cut"}) {
    EXPECT_THAT(message(name, static_cast<Corruption*>(nullptr)),
                HasSubstr("has no line; name a run that has begun"));
  }
  EXPECT_THAT(message("damaged", static_cast<Corruption*>(nullptr)), HasSubstr("line 3"));
  EXPECT_THAT(message("later", static_cast<Unsupported*>(nullptr)), HasSubstr("schema"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                read_runs({folder / "good", folder / "good/record.jsonl"});
              }),
              HasSubstr("is named twice; name each once"));
  EXPECT_THROW(read_runs({}), InvalidArgument);
}

TEST(ReadRuns, AConfigurationThatCannotBeReadHidesNothingElse) {
  const ScratchFolder folder;
  record::RunStart start;
  start.config = "no toml [";
  folder.write("a/record.jsonl", record::to_json({1.0, start}) + "\n");
  const Runs runs = read_runs({folder / "a"});
  EXPECT_TRUE(runs.runs[0].settings.empty());
  EXPECT_EQ(runs.runs[0].starts.size(), 1U);
}

TEST(CheckComparable, RefusesOtherBasesAndNothingElse) {
  report::Run first = example_run("a", "fp32", 1);
  report::Run second = example_run("b", "bf16", 2);
  second.settings["data.fasta"] = "/elsewhere/lambda.fa";
  check_comparable({first, second});
  second.settings.clear();
  check_comparable({first, second});
  second.settings = {{"data.fasta", "/data/yeast.fa"}};
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                check_comparable({first, second});
              }),
              HasSubstr("run b is on yeast.fa, held out nothing, run a on lambda.fa, held out [ "
                        "'chr1:1-100' ]; bits per base of other data cannot be compared"));
}

TEST(SummaryOf, AnUnfinishedRunComesFromItsSteps) {
  report::Run run = example_run("a", "fp16", 2);
  const record::Summary whole = summary_of(run);
  EXPECT_EQ(whole, *run.summary);
  run.summary.reset();
  run.steps.back().skipped = true;
  run.steps.back().scale = 32;
  const record::Summary partial = summary_of(run);
  EXPECT_EQ(partial.steps, 3);
  EXPECT_EQ(partial.seed, 2);
  EXPECT_EQ(partial.precision, "fp16");
  EXPECT_EQ(partial.skipped_steps, 1);
  EXPECT_EQ(partial.scale, 32);
  EXPECT_EQ(partial.step_time_s, 0.02);
  EXPECT_EQ(partial.bits_per_base, 1.92);
  EXPECT_EQ(partial.peak_bytes.at("all"), 5000);
  EXPECT_TRUE(std::isnan(partial.markov_bits_per_base));
  EXPECT_TRUE(std::isnan(summary_of(report::Run{}).step_time_s));
}

}  // namespace
}  // namespace mantissa::report
