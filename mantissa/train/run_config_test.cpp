#include "mantissa/train/run_config.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/scratch_folder.h"
#include "mantissa/train/run_config_keys.h"

namespace mantissa::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

class RunConfigTest : public ::testing::Test {
 protected:
  RunConfig load(const std::string& text, const std::vector<Setting>& settings = {}) {
    return load_run_config(folder_.write("run.toml", text), settings);
  }

  ScratchFolder folder_;
};

constexpr const char* kMinimal = "[data]\nfasta = \"lambda.fa\"\n";

TEST_F(RunConfigTest, PathsAreRelativeToTheFile) {
  EXPECT_EQ(load(kMinimal).data.fasta, (folder_ / "lambda.fa").string());
  EXPECT_EQ(load("[data]\nfasta = \"/genomes/x.fa\"\n").data.fasta, "/genomes/x.fa");
}

TEST_F(RunConfigTest, SettingsWinAndTheirPathsAreRelativeToTheCurrentFolder) {
  const RunConfig config = load(kMinimal, {{"data.fasta", "other.fa"},
                                           {"optim.lr", "3e-4"},
                                           {"optim.kind", "sgd"},
                                           {"data.validation", "[\"chr15\", \"chr16:1-500\"]"},
                                           {"data.reverse_complement", "false"}});
  EXPECT_EQ(config.data.fasta, (std::filesystem::current_path() / "other.fa").string());
  EXPECT_EQ(config.optim.lr, 3e-4);
  EXPECT_EQ(config.optim.kind, "sgd");
  EXPECT_EQ(config.data.validation, (std::vector<std::string>{"chr15", "chr16:1-500"}));
  EXPECT_FALSE(config.data.reverse_complement);
}

TEST_F(RunConfigTest, ResolvedFileReadsBackToTheSameValue) {
  const RunConfig config = load(std::string(kMinimal) +
                                "validation = [\"a\", \"b\\\"c\"]\ncontext = 77\n"
                                "[train]\nsteps = 12\nbatch = 6\nmicrobatch = 3\neval_every = 5\n"
                                "[optim]\nkind = \"sgd\"\nmomentum = 0.85\nlr = 0.1\n"
                                "[precision]\ncompute = \"fp16\"\nparam = \"fp16\"\n"
                                "[scale]\ninitial = 1024.0\ngrowth_interval = 7\n");
  const std::string text = to_toml(config);
  const RunConfig again = load(text);
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(again.data.validation, config.data.validation);
  EXPECT_EQ(again.data.context, 77);
  EXPECT_EQ(again.microbatch(), 3);
  EXPECT_EQ(again.optim.momentum, 0.85);
  EXPECT_EQ(again.precision.param, "fp16");
  EXPECT_EQ(again.scale_kind(), "dynamic");
  EXPECT_EQ(again.scale.initial, 1024.0);
}

// Every key is written and read: one that was forgotten would come back with its default.
TEST_F(RunConfigTest, EveryKeyThatCountsIsInTheResolvedFile) {
  const RunConfig config = load(kMinimal);
  const std::string text = to_toml(config);
  for (const Key& key : run_config_keys()) {
    const std::string name = key.name.substr(key.name.find('.') + 1) + " = ";
    if (key.has_effect == nullptr || key.has_effect(config)) {
      EXPECT_THAT(text, HasSubstr("\n" + name)) << key.name;
    }
    EXPECT_THAT(describe_keys(), HasSubstr(key.name + " = ")) << key.name;
  }
}

TEST_F(RunConfigTest, UnknownKeysAreNamedWithTheNearestAndTheLine) {
  EXPECT_THAT([&] { load(std::string(kMinimal) + "[train]\nstesp = 5\n"); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "run.toml:4: unknown key \"train.stesp\"; did you mean \"train.steps\"?")));
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"optim.lrr", "1"}});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("--set optim.lrr=1: unknown key \"optim.lrr\"; did you mean \"optim.lr\"?")));
  EXPECT_THAT([&] { load("steps = 5\n"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"steps\" stands outside of a section")));
}

TEST_F(RunConfigTest, WrongTypesAndRangesSayWhatIsValid) {
  const auto message_of = [&](const char* key, const char* value) -> std::string {
    try {
      load(kMinimal, {{key, value}});
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  EXPECT_THAT(message_of("train.steps", "ten"), HasSubstr("expected an integer"));
  EXPECT_THAT(message_of("train.steps", "1.5"),
              HasSubstr("train.steps is 1.5; expected an integer"));
  EXPECT_THAT(message_of("train.steps", "0"),
              HasSubstr("train.steps is 0; valid: at least 1, at most 1000000000000000"));
  EXPECT_THAT(message_of("optim.lr", "-1e-3"), HasSubstr("optim.lr is -0.001; valid: "));
  EXPECT_THAT(message_of("optim.lr", "nan"), HasSubstr("expected a finite number"));
  EXPECT_THAT(message_of("train.seed", "18446744073709551615"),
              HasSubstr("train.seed is 18446744073709551615, which 64 bits do not hold; valid: at "
                        "least 0, at most 9223372036854775807"));
  EXPECT_THAT(message_of("train.seed", "-1"),
              HasSubstr("valid: at least 0, at most 9223372036854775807"));
  EXPECT_THAT(message_of("train.steps", "99999999999999999999"),
              HasSubstr("which 64 bits do not hold; valid: at least 1, at most 1000000000000000"));
  EXPECT_THAT(message_of("optim.lr", "1e400"),
              HasSubstr("optim.lr is 1e400, which 64 bits do not hold; valid: more than 0, at most "
                        "1000000"));
  EXPECT_THAT(message_of("model.rope_base", "1e305"), HasSubstr("at most 1e+300"));
  EXPECT_THAT(message_of("optim.lr", "99_999_999_999_999_999_999"),
              HasSubstr("which 64 bits do not hold"));
  EXPECT_THAT(message_of("train.steps", "007"), HasSubstr("expected an integer"));
  EXPECT_THAT(message_of("optim.lr", "1e4x"), HasSubstr("expected a number"));
  EXPECT_THAT(message_of("optim.lr", ""), HasSubstr("expected a number"));
  EXPECT_THAT(message_of("precision.compute", "fp61"), HasSubstr("did you mean \"fp32\"?"));
  EXPECT_THAT(message_of("data.reverse_complement", "1"), HasSubstr("expected true or false"));
  EXPECT_THAT(message_of("data.validation", "chr1"), HasSubstr("expected a list of texts"));
  EXPECT_THAT(message_of("train.threads", "1000000"), HasSubstr("valid: at least 0, at most 4096"));
  EXPECT_THAT(message_of("optim.lr", "0"), HasSubstr("valid: more than 0, at most 1000000"));
  EXPECT_THAT(message_of("optim.beta1", "1"), HasSubstr("valid: at least 0 and less than 1"));
  EXPECT_THAT(message_of("model.width", "10"), HasSubstr("must be a multiple of twice the heads"));
  EXPECT_THAT(message_of("optim.warmup", "1000"), HasSubstr("is not below train.steps 1000"));
}

TEST_F(RunConfigTest, TheMicrobatchMayBeAuto) {
  const RunConfig run = load(kMinimal, {{"train.microbatch", "auto"}, {"train.memory", "2GB"}});
  EXPECT_EQ(run.train.microbatch, kAutoMicrobatch);
  EXPECT_EQ(run.microbatch(), run.train.batch);
  EXPECT_EQ(run.memory_bytes(), 2'000'000'000);
  EXPECT_THAT(to_toml(run), HasSubstr("microbatch = 'auto'"));
  EXPECT_THAT(to_toml(run), HasSubstr("memory = '2GB'"));
  for (const auto& [text, bytes] : std::map<std::string, int64_t>{
           {"1.5 GiB", 3 * (int64_t{1} << 29)}, {"12B", 12}, {"3kB", 3000}, {"0.5MiB", 524288}}) {
    RunConfig other = run;
    other.train.memory = text;
    EXPECT_EQ(other.memory_bytes(), bytes) << text;
  }
  const auto message_of = [&](const char* key, const char* value) -> std::string {
    try {
      load(kMinimal, {{key, value}});
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  EXPECT_THAT(message_of("train.microbatch", "automatic"),
              HasSubstr("expected an integer or \"auto\""));
  EXPECT_THAT(message_of("train.microbatch", "-1"), HasSubstr("valid: at least 0"));
  EXPECT_THAT(message_of("train.memory", "2GB"),
              HasSubstr("train.memory has no effect here; remove it, it counts when "
                        "train.microbatch is \"auto\""));
  for (const char* text : {"2", "2 gigabytes", "GB", "-1GB", "0B", "1e30GB", "nanGB"}) {
    EXPECT_THAT(
        [&] {
          load(kMinimal,
               {{"train.microbatch", "auto"}, {"train.memory", "\"" + std::string(text) + "\""}});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("valid: a number and B, kB, MB")))
        << text;
  }
}

TEST_F(RunConfigTest, ASettingWithoutEffectIsAnError) {
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"optim.momentum", "0.5"}});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("optim.momentum has no effect here; remove it, it counts when optim.kind is")));
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"scale.initial", "128"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("scale.initial has no effect here")));
  EXPECT_EQ(load(kMinimal, {{"scale.initial", "128"}, {"scale.kind", "static"}}).scale.initial,
            128);
}

TEST_F(RunConfigTest, ASettingMayTakeTheEffectFromAKeyOfTheFile) {
  const std::string warm = std::string(kMinimal) + "[optim]\nwarmup = 5\n";
  const RunConfig constant = load(warm, {{"optim.schedule", "constant"}});
  EXPECT_THAT(to_toml(constant), Not(HasSubstr("warmup")));
  EXPECT_EQ(to_toml(load(to_toml(constant))), to_toml(constant));

  const std::string scaled =
      std::string(kMinimal) + "[precision]\ncompute = \"fp16\"\n[scale]\ninitial = 1024.0\n";
  EXPECT_EQ(load(scaled, {{"precision.compute", "bf16"}}).scale_kind(), "none");

  // The file alone is at fault here.
  EXPECT_THAT(
      [&] {
        load(warm + "momentum = 0.5\n", {{"optim.schedule", "constant"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("run.toml:5: optim.momentum has no effect")));
  // And here the two settings are.
  EXPECT_THAT(
      [&] {
        load(warm, {{"optim.schedule", "constant"}, {"optim.warmup", "7"}});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("--set optim.warmup=7: optim.warmup has no effect here")));
}

// Or a run would not go on: its folder has the file, in which such a key is not.
TEST_F(RunConfigTest, AKeyThatCountsNothingIsAsIfNotGiven) {
  const std::vector<RunConfig> runs = load_run_configs(
      folder_.write("run.toml", std::string(kMinimal) + "[optim]\nmasters = \"none\"\n"), {},
      {{{"precision.compute", "fp32"}},
       {{"precision.compute", "bf16"}, {"precision.param", "bf16"}}});
  EXPECT_EQ(runs[0].optim.masters, "fp32");
  EXPECT_EQ(runs[1].optim.masters, "none");
}

TEST_F(RunConfigTest, ALimitOfTheFileIsSetAsideByNameOnly) {
  const std::string limited =
      std::string(kMinimal) + "[train]\nmicrobatch = \"auto\"\nmemory = \"2GB\"\n";
  EXPECT_THAT(
      [&] {
        load(limited, {{"train.microbatch", "4"}});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("run.toml:5: train.memory has no effect here; remove it")));
  EXPECT_EQ(load(limited, {{"train.microbatch", "4"}, {"train.memory", ""}}).train.microbatch, 4);
}

TEST_F(RunConfigTest, WhatDoesNotGoTogetherIsToldOfWhereItWasGiven) {
  const auto message_of = [&](const std::vector<Setting>& settings) -> std::string {
    try {
      load(std::string(kMinimal) + "[train]\nbatch = 32\nsteps = 50\n", settings);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  EXPECT_THAT(message_of({{"train.microbatch", "5"}}),
              StartsWith("--set train.microbatch=5: train.batch 32 is not a multiple"));
  EXPECT_THAT(message_of({{"train.microbatch", "auto"}, {"train.memory", "much"}}),
              StartsWith("--set train.memory=much: train.memory is \"much\"; valid: a number"));
  EXPECT_THAT(message_of({{"optim.warmup", "50"}}),
              StartsWith("--set optim.warmup=50: optim.warmup 50 is not below train.steps 50"));
}

TEST_F(RunConfigTest, ASettingOfSeveralRunsCountsInOneOfThem) {
  const auto load_all = [&](const std::vector<Setting>& settings,
                            const std::vector<std::string>& precisions) {
    std::vector<std::vector<Setting>> alternatives;
    alternatives.reserve(precisions.size());
    for (const std::string& precision : precisions) {
      alternatives.push_back({{"precision.compute", precision}});
    }
    return load_run_configs(folder_.write("run.toml", kMinimal), settings, alternatives);
  };
  const std::vector<RunConfig> runs = load_all({{"scale.initial", "1024"}}, {"fp32", "fp16"});
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].precision.compute, "fp32");
  EXPECT_THAT(to_toml(runs[0]), Not(HasSubstr("initial")));
  EXPECT_EQ(runs[1].scale.initial, 1024);
  EXPECT_THAT(
      [&] {
        load_all({{"scale.initial", "1024"}}, {"fp32", "bf16"});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("scale.initial has no effect here")));
  EXPECT_THAT(
      [&] {
        load_all({{"precision.compute", "fp16"}}, {"fp32"});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("precision.compute is set twice")));
}

TEST_F(RunConfigTest, AnAlternativeMayHaveSeveralSettings) {
  const std::vector<RunConfig> runs =
      load_run_configs(folder_.write("run.toml", kMinimal), {{"train.seed", "3"}},
                       {{}, {{"precision.compute", "bf16"}, {"precision.policy", "lean"}}});
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].precision.compute, "fp32");
  EXPECT_EQ(runs[1].precision.compute, "bf16");
  EXPECT_EQ(runs[1].precision.policy, "lean");
  EXPECT_EQ(runs[1].train.seed, 3);
}

TEST_F(RunConfigTest, ContradictionsAreRefused) {
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"train.batch", "10"}, {"train.microbatch", "4"}});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("train.batch 10 is not a multiple of train.microbatch 4")));
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"precision.param", "bf16"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("parameters are fp32 or of the compute format")));
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"precision.compute", "fp16"}, {"scale.ceiling", "1024"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("scale.ceiling 1024 is below scale.initial 65536")));
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"optim.min_lr", "1"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("optim.min_lr 1 is above optim.lr")));
  EXPECT_THAT([&] { load("[train]\nsteps = 3\n"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("data.fasta is missing")));
}

TEST_F(RunConfigTest, BrokenTomlAndMissingFilesAreOneLine) {
  EXPECT_THAT([&] { load("[data\nfasta = 1\n"); },
              ThrowsMessage<InvalidArgument>(
                  ::testing::AllOf(HasSubstr("run.toml:1: "), ::testing::Not(HasSubstr("\n")))));
  EXPECT_THAT(
      [&] { load("[train]\nseed = 99999999999999999999\n"); },
      ThrowsMessage<InvalidArgument>(::testing::AllOf(
          HasSubstr("run.toml:2: "), HasSubstr("; integers are -9223372036854775808 to "))));
  EXPECT_THAT([&] { load("[data]\ncontext = 8\ncontext = 9\n"); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "run.toml:3: Error while parsing key-value pair: cannot redefine existing "
                  "integer 'context'; a name is given once, "
                  "keep one of them")));
  EXPECT_THAT([&] { load_run_config(folder_.path(), {}); },
              ThrowsMessage<IoError>(HasSubstr(": is a folder; name a run file (.toml) in it")));
  EXPECT_THAT([&] { load_run_config("/dev/null", {}); },
              ThrowsMessage<IoError>("/dev/null: is a pipe or a device; name a run file (.toml)"));
  EXPECT_THAT([&] { load_run_config(folder_ / "absent.toml", {}); },
              ThrowsMessage<IoError>(HasSubstr("absent.toml: no such run file")));
}

TEST_F(RunConfigTest, AKeyIsSetOnceOnTheCommandLine) {
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"optim.lr", "1"}, {"optim.lr", "2"}});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("--set optim.lr=2: optim.lr is set twice on the command line")));
}

TEST_F(RunConfigTest, APolicyFileBecomesTextAndMustNotContradictTheFormat) {
  folder_.write("own.toml", "base = \"torch\"\n[rules]\nmm = \"fp32\"\n");
  folder_.write("bf16.toml", "compute = \"bf16\"\n");
  const std::string section = std::string(kMinimal) + "[precision]\ncompute = \"fp16\"\npolicy = ";
  const RunConfig config = load(section + "\"own.toml\"\n");
  std::filesystem::remove(folder_ / "own.toml");
  EXPECT_EQ(load(to_toml(config)).precision.policy, "torch compute=fp16 mm=fp32");
  EXPECT_THAT([&] { load(section + "\"bf16.toml\"\n"); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("the policy says compute=bf16, precision.compute is fp16")));
  EXPECT_EQ(
      load(std::string(kMinimal) + "[precision]\ncompute = \"bf16\"\npolicy = \"bf16.toml\"\n")
          .precision.policy,
      "torch");
}

TEST_F(RunConfigTest, APolicyThatIsRefusedSaysWhereItWasGiven) {
  const std::string section = std::string(kMinimal) + "[precision]\npolicy = ";
  EXPECT_THAT([&] { load(section + "\"torhc\"\n"); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("run.toml:4: precision.policy: policy: unknown base \"torhc\"; did you "
                            "mean \"torch\"?")));
  EXPECT_THAT([&] { load(section + "\"absent.toml\"\n"); },
              ThrowsMessage<IoError>(HasSubstr("run.toml:4: precision.policy: policy ")));
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"precision.policy", "torhc"}});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("--set precision.policy=torhc: precision.policy: policy: unknown base")));
}

TEST_F(RunConfigTest, APolicySaysInWhichFormatParametersAre) {
  const std::vector<Setting> bf16 = {{"precision.compute", "bf16"}};
  EXPECT_EQ(load(kMinimal, bf16).precision.param, "fp32");
  const RunConfig named =
      load(kMinimal, {{"precision.compute", "bf16"}, {"precision.policy", "torch param=bf16"}});
  EXPECT_EQ(named.precision.param, "bf16");
  EXPECT_EQ(load(to_toml(named)).precision.param, "bf16");
  // A base for FP16 follows the format of the run.
  const RunConfig apex =
      load(kMinimal, {{"precision.compute", "bf16"}, {"precision.policy", "apex-o2"}});
  EXPECT_EQ(apex.precision.param, "bf16");
  EXPECT_EQ(load(to_toml(apex)).precision.policy, apex.precision.policy);
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"precision.compute", "bf16"},
                        {"precision.policy", "torch param=bf16"},
                        {"precision.param", "fp32"}});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("the policy says param=bf16, precision.param is fp32")));
}

TEST_F(RunConfigTest, MastersCountWith16BitParametersOnly) {
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"precision.compute", "bf16"}, {"optim.masters", "split"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("optim.masters has no effect here")));
  EXPECT_EQ(
      load(kMinimal,
           {{"precision.compute", "bf16"}, {"precision.param", "bf16"}, {"optim.masters", "split"}})
          .optim.masters,
      "split");
}

TEST_F(RunConfigTest, MomentsAndTheirAverageCountWhereThereAreSome) {
  EXPECT_EQ(load(kMinimal, {{"optim.kind", "adam"}, {"optim.beta1", "0.8"}}).optim.kind, "adam");
  EXPECT_EQ(load(kMinimal, {{"optim.kind", "sgd"}, {"optim.moments", "bf16"}}).optim.moments,
            "bf16");
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"optim.kind", "sgd"}, {"optim.momentum", "0"}, {"optim.moments", "bf16"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("optim.moments has no effect here")));
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"optim.moments", "blockwise"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("did you mean \"blockwise8\"?")));
  EXPECT_THAT(
      [&] {
        load(kMinimal, {{"optim.ema_warmup", "true"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("optim.ema_warmup has no effect here")));
  EXPECT_EQ(load(kMinimal, {{"optim.ema", "0.99"}}).optim.ema, 0.99);
}

TEST_F(RunConfigTest, SettingsAreSplitAtTheFirstEquals) {
  EXPECT_EQ(parse_setting("a.b=c=d").key, "a.b");
  EXPECT_EQ(parse_setting("a.b=c=d").value, "c=d");
  EXPECT_THROW(parse_setting("a.b"), InvalidArgument);
  EXPECT_THROW(parse_setting("=1"), InvalidArgument);
}

TEST_F(RunConfigTest, AutoScaleIsDynamicForFp16Only) {
  EXPECT_EQ(load(kMinimal, {{"precision.compute", "fp16"}}).scale_kind(), "dynamic");
  EXPECT_EQ(load(kMinimal, {{"precision.compute", "bf16"}}).scale_kind(), "none");
}

}  // namespace
}  // namespace mantissa::train
