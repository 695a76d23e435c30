#include "mantissa/train/loop.h"

#include <cmath>
#include <functional>
#include <map>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/checkpoint/reader.h"
#include "mantissa/data/evaluation.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/record/reader.h"
#include "mantissa/tensor/memory.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

class LoopTest : public TinyRunTest {
 protected:
  static void SetUpTestSuite() { ops::install_cpu_kernels(); }

  // Asks the loop to stop once it has done `steps` of them.
  static LoopOptions stop_after(int64_t steps, std::atomic<int>& stop) {
    LoopOptions options;
    options.stop = &stop;
    options.observe = [steps, &stop](const record::Event& event) {
      const auto* step = std::get_if<record::Step>(&event);
      if (step != nullptr && step->step >= steps) {
        stop = 1;
      }
    };
    return options;
  }
};

TEST_F(LoopTest, AnInterruptionAtAnyStepChangesNothing) {
  // All state moves: FP16 that overflows at first, accumulation, 16-bit parameters, dropout.
  const RunConfig run = config({{"precision.compute", "fp16"},
                                {"precision.param", "fp16"},
                                {"scale.initial", "1e9"},
                                {"scale.growth_interval", "3"},
                                {"train.microbatch", "2"},
                                {"model.dropout", "0.2"}});
  const LoopOutcome whole = start_run(run, root_ / "whole");
  EXPECT_EQ(whole.ending, Ending::finished);
  EXPECT_GT(whole.summary.skipped_steps, 0);
  for (int64_t steps = 1; steps < run.train.steps; ++steps) {
    SCOPED_TRACE(steps);
    const std::filesystem::path folder = root_ / std::to_string(steps);
    std::atomic<int> stop{0};
    EXPECT_EQ(start_run(run, folder, stop_after(steps, stop)).ending, Ending::interrupted);
    const LoopOutcome resumed = resume_run(folder);
    EXPECT_EQ(resumed.ending, Ending::finished);
    EXPECT_EQ(resumed.summary.loss, whole.summary.loss);
    EXPECT_EQ(resumed.summary.bits_per_base, whole.summary.bits_per_base);
    expect_equal(final_state(folder), final_state(root_ / "whole"));
  }
}

TEST_F(LoopTest, TheAllocatorIsThatOfTheRunFileAndChangesNoBit) {
  std::map<std::string, record::Summary> runs;
  for (const std::string allocator : {"caching", "system"}) {
    const auto blocks_made = [] {
      const ArenaStatistics arena = tensor::memory::caching_statistics();
      return arena.splits + arena.extent_bytes;
    };
    const int64_t before = blocks_made();
    runs[allocator] = start_run(config({{"model.width", "64"}, {"train.allocator", allocator}}),
                                root_ / allocator)
                          .summary;
    EXPECT_EQ(blocks_made() > before, allocator == "caching");
    EXPECT_EQ(name_of(tensor::memory::current_allocator()), allocator);
    EXPECT_EQ(runs[allocator].allocator, allocator);
  }
  EXPECT_EQ(runs["caching"].loss, runs["system"].loss);
  expect_equal(final_state(root_ / "caching"), final_state(root_ / "system"));
}

TEST_F(LoopTest, TheSummaryNamesTheLargestHoldersOfThePeak) {
  start_run(config(), root_ / "warm");
  tensor::memory::reset_peak();
  const record::Summary summary = start_run(config(), root_ / "a").summary;
  EXPECT_EQ(summary.peak_holders.size(), 8U);
  EXPECT_GT(summary.peak_holders.at("activations blocks.0.mlp"), 0);
  int64_t sum = 0;
  for (const auto& [name, bytes] : summary.peak_holders) {
    sum += bytes;
  }
  int64_t total = 0;
  for (const auto& [category, bytes] : summary.peak_bytes) {
    total += bytes;
  }
  EXPECT_LE(sum, total);
  EXPECT_GT(2 * sum, total);
}

TEST_F(LoopTest, ThePeakOfAResumedRunIsThatOfBothParts) {
  const RunConfig run = config();
  std::atomic<int> stop{0};
  const LoopOutcome before = start_run(run, root_ / "a", stop_after(5, stop));
  EXPECT_EQ(before.peak_bytes, before.summary.peak_bytes);
  // As if the first part had taken more: the record alone knows it after a resume.
  const std::filesystem::path record = root_ / "a" / "record.jsonl";
  std::string bytes = read_file(record);
  const std::string own = concat(R"("activations":)", before.peak_bytes.at("activations"));
  size_t changed = 0;
  for (size_t at = bytes.find(own); at != std::string::npos; at = bytes.find(own, at)) {
    bytes.replace(at, own.size(), R"("activations":123456789012)");
    ++changed;
  }
  ASSERT_GT(changed, 0U);
  replace_file(record, bytes);
  const LoopOutcome after = resume_run(root_ / "a");
  EXPECT_EQ(after.summary.peak_bytes.at("activations"), 123456789012);
  EXPECT_LT(after.peak_bytes.at("activations"), 123456789012);
  EXPECT_GT(after.peak_bytes.at("activations"), 0);
}

TEST_F(LoopTest, TheRecordHasEachStepOnceAfterAResume) {
  const RunConfig run = config();
  std::atomic<int> stop{0};
  start_run(run, root_ / "a", stop_after(5, stop));
  resume_run(root_ / "a");
  std::vector<int64_t> steps;
  for (const record::Entry& entry : record::read(root_ / "a" / "record.jsonl").entries) {
    if (const auto* step = std::get_if<record::Step>(&entry.event)) {
      steps.push_back(step->step);
    }
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(LoopTest, ARecordThatLostStepsIsToldOf) {
  const RunConfig run = config();
  const auto warning_after = [&](const char* name, const auto& damage) {
    std::atomic<int> stop{0};
    start_run(run, root_ / name, stop_after(5, stop));
    damage(root_ / name / "record.jsonl");
    std::string warning;
    LoopOptions options;
    options.observe = [&warning](const record::Event& event) {
      const auto* message = std::get_if<record::Message>(&event);
      if (message != nullptr && message->level == record::Level::warning) {
        warning += message->text;
      }
    };
    EXPECT_EQ(resume_run(root_ / name, options).ending, Ending::finished);
    return warning;
  };
  using Path = std::filesystem::path;
  EXPECT_EQ(warning_after("whole", [](const Path&) {}), "");
  EXPECT_THAT(warning_after("gone", [](const Path& record) { std::filesystem::remove(record); }),
              ::testing::HasSubstr("has 0 of the 5 steps"));
  EXPECT_THAT(warning_after("cut",
                            [](const Path& record) {
                              const std::string bytes = read_file(record);
                              const size_t third = bytes.find("\"step\":3,");
                              ASSERT_NE(third, std::string::npos);
                              replace_file(record, bytes.substr(0, third));
                            }),
              ::testing::HasSubstr("has 2 of the 5 steps"));
}

TEST_F(LoopTest, TheMarkovFigureIsOfTheWindowsThatAreValidated) {
  const RunConfig run = config({{"train.eval_windows", "4"}});
  const RunData data = open_data(run);
  const data::EvaluationBatches pass(data.validation, {.batch = run.microbatch(), .windows = 4});
  const double figure = start_run(run, root_ / "a").summary.markov_bits_per_base;
  EXPECT_EQ(figure, markov_bits_per_base(data, pass.bases()));
  EXPECT_NE(figure, markov_bits_per_base(data, data.split.validation));
}

TEST_F(LoopTest, ARunFileThatWasChangedSinceIsRefused) {
  start_run(config(), root_ / "a");
  EXPECT_EQ(to_toml(load_run(root_ / "a")), to_toml(config()));
  replace_file(root_ / "a" / "run.toml", to_toml(config({{"train.seed", "7"}})));
  for (const auto& read : {std::function<void()>([&] { load_run(root_ / "a"); }),
                           std::function<void()>([&] { resume_run(root_ / "a"); })}) {
    EXPECT_THAT(read, ::testing::ThrowsMessage<InvalidArgument>(
                          ::testing::HasSubstr("was damaged or changed since the run began")));
  }
}

TEST_F(LoopTest, ABestCheckpointThatAKillLeftUnmarkedIsMarkedByTheResume) {
  std::atomic<int> stop{0};
  LoopOptions options;
  options.stop = &stop;
  options.observe = [&stop](const record::Event& event) {
    if (std::holds_alternative<record::CheckpointSaved>(event)) {
      stop = 1;
    }
  };
  start_run(config(), root_ / "a", options);
  const std::filesystem::path checkpoints = root_ / "a" / "checkpoints";
  ASSERT_EQ(checkpoint::read_best(checkpoints).checkpoint.step, 4);
  std::filesystem::remove(checkpoints / "best");  // as after a kill between writing and marking
  EXPECT_EQ(resume_run(root_ / "a", options).ending, Ending::interrupted);
  EXPECT_EQ(checkpoint::read_best(checkpoints).checkpoint.step, 4);
}

TEST_F(LoopTest, ARunWithoutACheckpointStartsAgain) {
  const RunConfig run = config();
  start_run(run, root_ / "whole");
  std::filesystem::create_directories(root_ / "a");
  replace_file(root_ / "a" / "run.toml", to_toml(run));
  EXPECT_EQ(resume_run(root_ / "a").ending, Ending::finished);
  expect_equal(final_state(root_ / "a"), final_state(root_ / "whole"));
}

TEST_F(LoopTest, ARefusedRunLeavesNoFolder) {
  EXPECT_THROW(start_run(config({{"data.context", "49000"}}), root_ / "a"), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(root_ / "a"));
}

TEST_F(LoopTest, AFinishedRunGivesItsSummaryAndWritesNothing) {
  const LoopOutcome first = start_run(config(), root_ / "a");
  const std::string record = read_file(root_ / "a" / "record.jsonl");
  const LoopOutcome again = resume_run(root_ / "a");
  EXPECT_EQ(record::to_json(again.summary), record::to_json(first.summary));
  EXPECT_EQ(read_file(root_ / "a" / "record.jsonl"), record);
}

TEST_F(LoopTest, AnEditedRunFileIsRefused) {
  std::atomic<int> stop{0};
  start_run(config(), root_ / "a", stop_after(5, stop));
  replace_file(root_ / "a" / "run.toml", to_toml(config({{"train.seed", "2"}})));
  EXPECT_THAT([&] { resume_run(root_ / "a"); },
              ::testing::ThrowsMessage<InvalidArgument>(
                  ::testing::HasSubstr("run.toml: was damaged or changed since the run began")));
}

TEST_F(LoopTest, LostCheckpointsAreNotTakenForABeginning) {
  std::atomic<int> stop{0};
  start_run(config(), root_ / "a", stop_after(5, stop));
  std::filesystem::remove_all(root_ / "a" / "checkpoints");
  EXPECT_THAT([&] { resume_run(root_ / "a"); },
              ::testing::ThrowsMessage<Corruption>(
                  ::testing::HasSubstr("the record tells of checkpoints, but there are none")));
}

TEST_F(LoopTest, AChangedGenomeIsRefused) {
  const std::filesystem::path fasta = root_ / "own.fa";
  std::string text = read_file(MANTISSA_SOURCE_DIR "/data/lambda.fa");
  replace_file(fasta, text);
  RunConfig run = config();
  run.data.fasta = fasta.string();
  std::atomic<int> stop{0};
  start_run(run, root_ / "a", stop_after(5, stop));
  char& base = text[text.find('\n') + 1];
  base = base == 'A' ? 'C' : 'A';
  replace_file(fasta, text);
  EXPECT_THAT([&] { resume_run(root_ / "a"); },
              ::testing::ThrowsMessage<InvalidArgument>(
                  ::testing::HasSubstr("own.fa: is not the genome of this run")));
}

TEST_F(LoopTest, TheSeedDecidesEveryByteOfACheckpoint) {
  start_run(config(), root_ / "a");
  start_run(config(), root_ / "b");
  const auto tensors = [&](const char* name) {
    return read_file(root_ / name / "checkpoints" / "step-9" / "tensors.safetensors");
  };
  EXPECT_EQ(tensors("a"), tensors("b"));
}

TEST_F(LoopTest, PatienceEndsTheRunAndTheSummarySaysSo) {
  // A rate of nearly zero: no validation after the first is better than FP32 noise, and the weight
  // decay is off; equal values are not better.
  const RunConfig run = config({{"train.steps", "1000"},
                                {"train.eval_every", "1"},
                                {"train.patience", "2"},
                                {"optim.lr", "1e-30"},
                                {"optim.weight_decay", "0"}});
  const LoopOutcome outcome = start_run(run, root_ / "a");
  EXPECT_EQ(outcome.ending, Ending::patience);
  EXPECT_EQ(outcome.summary.stopped_by, "patience");
  EXPECT_EQ(outcome.summary.steps, 3);
  EXPECT_EQ(checkpoint::read_best(root_ / "a" / "checkpoints").checkpoint.step, 1);
}

TEST_F(LoopTest, LostUpdatesAreAWarningThatNamesTheParameter) {
  const RunConfig run = config({{"precision.compute", "bf16"},
                                {"precision.param", "bf16"},
                                {"optim.masters", "none"},
                                {"optim.lr", "1e-5"},
                                {"optim.weight_decay", "0"}});
  std::vector<std::string> warnings;
  LoopOptions options;
  options.observe = [&](const record::Event& event) {
    if (const auto* message = std::get_if<record::Message>(&event)) {
      warnings.push_back(message->text);
    }
  };
  start_run(run, root_ / "a", options);
  EXPECT_THAT(warnings, ::testing::ElementsAre(::testing::AllOf(
                            ::testing::HasSubstr("parameter "),
                            ::testing::HasSubstr("are less than half of a rounding step and lost"),
                            ::testing::HasSubstr("set optim.masters to split"))));
}

TEST_F(LoopTest, TheTimeOfAStepSplitsIntoPhases) {
  std::vector<record::Step> steps;
  LoopOptions options;
  options.observe = [&](const record::Event& event) {
    if (const auto* step = std::get_if<record::Step>(&event)) {
      steps.push_back(*step);
    }
  };
  start_run(config(), root_ / "a", options);
  ASSERT_EQ(steps.size(), 9U);
  for (const record::Step& step : steps) {
    EXPECT_EQ(step.phases.size(), 5U);
    double sum = 0;
    for (const auto& [phase, seconds] : step.phases) {
      EXPECT_GE(seconds, 0) << phase;
      sum += seconds;
    }
    EXPECT_EQ(sum, step.step_time_s);
    EXPECT_GT(step.phases.at("forward"), 0);
    EXPECT_GT(step.phases.at("backward"), 0);
    EXPECT_GT(step.phases.at("optimizer"), 0);
  }
}

TEST_F(LoopTest, ASkippedStepHasTheTimeOfItsReplay) {
  std::vector<record::Step> steps;
  LoopOptions options;
  options.observe = [&](const record::Event& event) {
    if (const auto* step = std::get_if<record::Step>(&event)) {
      steps.push_back(*step);
    }
  };
  start_run(
      config({{"precision.compute", "fp16"}, {"scale.initial", "1e9"}, {"scale.backoff", "0.001"}}),
      root_ / "a", options);
  ASSERT_TRUE(steps.front().skipped);
  EXPECT_GT(steps.front().phases.at("replay"), 0);
  ASSERT_FALSE(steps.back().skipped);
  EXPECT_EQ(steps.back().phases.count("replay"), 0U);
}

TEST_F(LoopTest, SomeStepsRecordTheTimeOfEachOperationAndComputeTheSame) {
  const std::vector<Setting> settings = {{"precision.compute", "bf16"}, {"model.dropout", "0.2"}};
  std::vector<Setting> timed = settings;
  timed.push_back({"train.time_split_every", "4"});
  std::vector<Setting> untimed = settings;
  untimed.push_back({"train.time_split_every", "0"});
  start_run(config(timed), root_ / "timed");
  start_run(config(untimed), root_ / "untimed");
  expect_equal(final_state(root_ / "timed"), final_state(root_ / "untimed"));

  std::vector<record::TimeSplit> splits;
  for (const record::Entry& entry : record::read(root_ / "timed" / "record.jsonl").entries) {
    if (const auto* split = std::get_if<record::TimeSplit>(&entry.event)) {
      splits.push_back(*split);
    }
  }
  ASSERT_EQ(splits.size(), 2U);
  EXPECT_EQ(splits[0].step, 4);
  EXPECT_EQ(splits[1].step, 8);
  for (const record::TimeSplit& split : splits) {
    double phases = 0;
    for (const auto& [phase, seconds] : split.phases) {
      phases += seconds;
    }
    EXPECT_NEAR(phases, split.step_time_s, 1e-12 * split.step_time_s);
    EXPECT_GT(split.phases.at("casts"), 0);
    double rows = 0;
    double products = 0;
    for (const record::OperationRow& row : split.operations) {
      rows += row.time_s;
      if (row.kind == "product" && row.phase != "optimizer") {
        EXPECT_EQ(row.format, "bf16") << row.operation;
        EXPECT_TRUE(row.in_16_bits);
        products += row.flops;
      }
    }
    EXPECT_LE(rows, split.step_time_s);
    EXPECT_GT(products, 0);
  }
  for (const record::Entry& entry : record::read(root_ / "untimed" / "record.jsonl").entries) {
    EXPECT_FALSE(std::holds_alternative<record::TimeSplit>(entry.event));
  }
}

TEST_F(LoopTest, SomeStepsRecordStatisticsOfTheGradientOfEachParameter) {
  std::vector<int64_t> steps;
  LoopOptions options;
  options.observe = [&](const record::Event& event) {
    const auto* step = std::get_if<record::Step>(&event);
    if (step == nullptr || step->gradients.empty()) {
      return;
    }
    steps.push_back(step->step);
    double squares = 0;
    for (const auto& [parameter, numbers] : step->gradients) {
      squares += numbers.at("norm") * numbers.at("norm");
      EXPECT_LE(numbers.at("fp16_zero") + numbers.at("fp16_subnormal") + numbers.at("zeros"), 1);
      EXPECT_GE(numbers.at("largest"), numbers.at("smallest")) << parameter;
    }
    EXPECT_NEAR(std::sqrt(squares), step->grad_norm, 0x1p-23 * step->grad_norm);
  };
  const RunConfig run = config({{"train.gradient_statistics_every", "3"}});
  start_run(run, root_ / "a", options);
  ASSERT_FALSE(steps.empty());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i], static_cast<int64_t>(3 * (i + 1)));
  }
}

TEST_F(LoopTest, ParametersOfMixedFormatsResumeBitForBit) {
  const RunConfig run = config({{"precision.compute", "bf16"},
                                {"precision.policy",
                                 "torch param=bf16 parameter:*norm*=fp32 "
                                 "parameter:*.up.*=fp32"}});
  start_run(run, root_ / "whole");
  std::atomic<int> stop{0};
  start_run(run, root_ / "a", stop_after(5, stop));
  resume_run(root_ / "a");
  const tensor::StateDict state = final_state(root_ / "a");
  EXPECT_EQ(state.tensor("learner.model.blocks.0.mlp.up.weight").scalar_type(), at::kFloat);
  EXPECT_EQ(state.tensor("learner.model.blocks.0.mlp.down.weight").scalar_type(), at::kBFloat16);
  expect_equal(state, final_state(root_ / "whole"));
}

TEST_F(LoopTest, EveryKindOfMastersResumesBitForBit) {
  for (const char* masters : {"split", "compensated", "stochastic"}) {
    SCOPED_TRACE(masters);
    const RunConfig run = config(
        {{"precision.compute", "bf16"}, {"precision.param", "bf16"}, {"optim.masters", masters}});
    const std::filesystem::path whole = root_ / (std::string(masters) + "-whole");
    const std::filesystem::path folder = root_ / masters;
    start_run(run, whole);
    std::atomic<int> stop{0};
    start_run(run, folder, stop_after(5, stop));
    resume_run(folder);
    expect_equal(final_state(folder), final_state(whole));
  }
}

TEST_F(LoopTest, EveryKindOfMomentsAndTheAverageResumeBitForBit) {
  const std::vector<std::vector<Setting>> cases = {
      {{"optim.moments", "bf16"},
       {"optim.kind", "adam"},
       {"optim.ema", "0.8"},
       {"optim.ema_warmup", "true"}},
      {{"optim.moments", "blockwise8"}, {"optim.masters", "split"}},
      {{"optim.moments", "blockwise8"}, {"optim.kind", "sgd"}, {"optim.masters", "stochastic"}}};
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    std::vector<Setting> settings = {{"precision.compute", "bf16"}, {"precision.param", "bf16"}};
    settings.insert(settings.end(), cases[i].begin(), cases[i].end());
    const RunConfig run = config(settings);
    const std::filesystem::path whole = root_ / (std::to_string(i) + "-whole");
    const std::filesystem::path folder = root_ / std::to_string(i);
    const LoopOutcome expected = start_run(run, whole);
    std::atomic<int> stop{0};
    start_run(run, folder, stop_after(5, stop));
    EXPECT_EQ(resume_run(folder).summary.bits_per_base, expected.summary.bits_per_base);
    expect_equal(final_state(folder), final_state(whole));
    EXPECT_EQ(final_state(folder).contains("learner.ema.updates"), i == 0);
  }
}

TEST_F(LoopTest, TheSummaryHasTheBytesOfAParameterInAStep) {
  using Bytes = std::map<std::string, double>;
  EXPECT_EQ(start_run(config(), root_ / "a").summary.bytes_per_param,
            (Bytes{{"weights", 4}, {"gradients", 4}, {"masters", 0}, {"moments", 8}}));
  const RunConfig narrow = config({{"precision.compute", "bf16"},
                                   {"precision.param", "bf16"},
                                   {"optim.masters", "split"},
                                   {"optim.moments", "bf16"},
                                   {"optim.ema", "0.9"},
                                   {"train.microbatch", "2"}});
  // Microbatches add up in FP32.
  EXPECT_EQ(start_run(narrow, root_ / "b").summary.bytes_per_param,
            (Bytes{{"weights", 2}, {"gradients", 4}, {"masters", 2}, {"moments", 4}, {"ema", 4}}));
}

TEST_F(LoopTest, TooManySkipsInARowEndTheRunByName) {
  const RunConfig run = config({{"precision.compute", "fp16"},
                                {"scale.kind", "static"},
                                {"scale.initial", "1e30"},
                                {"train.max_skips", "3"}});
  EXPECT_THAT([&] { start_run(run, root_ / "a"); },
              ::testing::ThrowsMessage<Error>(::testing::AllOf(
                  ::testing::HasSubstr("train: 3 steps in a row were skipped up to step 3"),
                  ::testing::HasSubstr("then in the gradient of "),
                  ::testing::HasSubstr("finite at scale 1, the loss scale was too large; 4 "
                                       "sequences from NC_001416.1:"))));
}

// A dynamic scale that its floor holds, gradients beyond FP16 at any scale, and weights that FP16
// no longer holds: none trains, so each ends, names its cause, and leaves the scale that is no
// help.
TEST_F(LoopTest, NoWayOfSkippingGoesOnForEver) {
  struct Case {
    std::vector<Setting> settings;
    const char* cause;
  };
  const std::vector<Case> cases = {
      {{{"scale.initial", "1e30"}, {"scale.floor", "1e30"}}, "the loss scale was too large"},
      {{{"scale.initial", "1e30"}, {"scale.backoff", "0.9"}, {"scale.floor", "1e-30"}},
       "then in the gradient of "},
      {{{"optim.lr", "1e5"}, {"optim.warmup", "0"}},
       "the loss is not finite, which no loss scale"}};
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    std::vector<Setting> settings = {{"precision.compute", "fp16"}, {"train.max_skips", "3"}};
    settings.insert(settings.end(), cases[i].settings.begin(), cases[i].settings.end());
    EXPECT_THAT([&] { start_run(config(settings), root_ / std::to_string(i)); },
                ::testing::ThrowsMessage<Error>(
                    ::testing::AllOf(::testing::HasSubstr("3 steps in a row were skipped"),
                                     ::testing::HasSubstr(cases[i].cause))));
  }
}

}  // namespace
}  // namespace mantissa::train
