#include "mantissa/train/make_model.h"

#include <atomic>
#include <cmath>
#include <filesystem>
#include <string>

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/models/hyena.h"
#include "mantissa/models/transformer.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/loop.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::vector<Setting> kHyena = {{"model.kind", "hyena"}};

std::vector<Setting> hyena(std::vector<Setting> more) {
  more.insert(more.begin(), kHyena.begin(), kHyena.end());
  return more;
}

class MakeModelTest : public TinyRunTest {
 protected:
  void expect_refused(const std::vector<Setting>& settings, const std::string& message) const {
    EXPECT_THAT([&] { (void)config(settings); },
                ThrowsMessage<InvalidArgument>(HasSubstr(message)));
  }
};

template <typename Model>
auto options_of(const RunConfig& run) {
  const auto model = make_model(run);
  const auto* as = dynamic_cast<const Model*>(model.get());
  MANTISSA_ASSERT(as != nullptr);
  return as->options();
}

TEST_F(MakeModelTest, EveryKeyOfAHyenaReachesIt) {
  const auto options = options_of<models::Hyena>(config(hyena({{"model.order", "3"},
                                                               {"model.positions", "64"},
                                                               {"model.short_taps", "5"},
                                                               {"model.filter_width", "12"},
                                                               {"model.filter_layers", "1"},
                                                               {"model.filter_bands", "3"},
                                                               {"model.filter_frequency", "7"},
                                                               {"model.slow_decay", "1.25"},
                                                               {"model.fast_decay", "0.5"},
                                                               {"model.decay_target", "0.125"},
                                                               {"model.decay_shift", "0.0625"},
                                                               {"model.dropout", "0.25"},
                                                               {"model.mlp_ratio", "2"},
                                                               {"train.recompute", "block"}})));
  EXPECT_EQ(options.vocabulary, 16);
  EXPECT_EQ(options.layers, 1);
  EXPECT_EQ(options.width, 16);
  EXPECT_EQ(options.order, 3);
  EXPECT_EQ(options.mlp_ratio, 2);
  EXPECT_EQ(options.short_taps, 5);
  EXPECT_EQ(options.filter.positions, 64);
  EXPECT_EQ(options.filter.width, 12);
  EXPECT_EQ(options.filter.layers, 1);
  EXPECT_EQ(options.filter.bands, 3);
  EXPECT_EQ(options.filter.frequency, 7);
  EXPECT_EQ(options.filter.slow_decay, 1.25);
  EXPECT_EQ(options.filter.fast_decay, 0.5);
  EXPECT_EQ(options.filter.decay_target, 0.125);
  EXPECT_EQ(options.filter.decay_shift, 0.0625);
  EXPECT_EQ(options.dropout, 0.25);
  EXPECT_EQ(options.recompute, models::Recompute::block);
  EXPECT_EQ(options.direction, models::Direction::causal);
  EXPECT_TRUE(options.complement.empty());
  EXPECT_EQ(options_of<models::Hyena>(config(kHyena)).filter.positions, 32);  // data.context
}

TEST_F(MakeModelTest, ASizeIsThatOfHyenaDna) {
  const RunConfig run = load_run_config(
      root_.write("sized.toml", "[data]\nfasta = \"" MANTISSA_SOURCE_DIR
                                "/data/lambda.fa\"\ncontext = 32\n[model]\nkind = \"hyena\"\n"
                                "size = \"tiny-1k-d256\"\n[train]\nbatch = 4\n"),
      {});
  const auto options = options_of<models::Hyena>(run);
  EXPECT_EQ(options.layers, 2);
  EXPECT_EQ(options.width, 256);
  EXPECT_EQ(options.filter.positions, 1026);
  EXPECT_EQ(load_run_config(root_.write("again.toml", to_toml(run)), {}).model.size,
            "tiny-1k-d256");
  EXPECT_THAT(
      [&] {
        (void)load_run_config(root_.path() / "sized.toml", {{"model.width", "64"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr(
          "--set model.width=64: model.width has no effect here; remove it, it counts when "
          "model.size is \"custom\"")));
  EXPECT_THAT(
      [&] {
        (void)load_run_config(root_.path() / "sized.toml", {{"data.context", "2000"}});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("--set data.context=2000: data.context 2000 is above the 1026 positions of "
                    "the model's filters; choose a shorter context or more positions")));
}

TEST_F(MakeModelTest, AKeyOfTheOtherKindIsRefused) {
  expect_refused({{"model.order", "3"}},
                 "model.order has no effect here; remove it, it counts when model.kind is "
                 "\"hyena\"");
  expect_refused({{"model.size", "tiny-1k"}}, "model.size has no effect here");
  expect_refused(hyena({{"model.rope_base", "100"}}),
                 "model.rope_base has no effect here; remove it, it counts when model.kind is "
                 "\"transformer\"");
  expect_refused(hyena({{"model.size", "tiny-2k"}}), "model.size is 'tiny-2k'");
  expect_refused(hyena({{"model.positions", "16"}}), "is above the 16 positions");
}

TEST_F(MakeModelTest, MaskedModelsAreBidirectionalAndMayBeEquivariant) {
  const Setting masked = {"data.objective", "masked"};
  const Setting equivariant = {"model.reverse_complement", "equivariant"};
  const auto plain = options_of<models::Transformer>(config({masked}));
  EXPECT_EQ(plain.direction, models::Direction::bidirectional);
  EXPECT_TRUE(plain.complement.empty());
  const auto both = options_of<models::Transformer>(config({masked, equivariant}));
  EXPECT_EQ(both.complement.size(), 16);
  EXPECT_EQ(both.complement[7], 10);  // A and T
  const auto options = options_of<models::Hyena>(config(hyena({masked, equivariant})));
  EXPECT_EQ(options.direction, models::Direction::bidirectional);
  EXPECT_EQ(options.complement, both.complement);
  expect_refused({equivariant},
                 "--set model.reverse_complement=equivariant: model.reverse_complement is "
                 "\"equivariant\" with data.objective causal: the other strand would show what is "
                 "to be predicted; use data.objective masked");
}

// The whole loop: a run that is stopped and goes on is the run that was not, bit for bit.
TEST_F(MakeModelTest, HyenasTrainAndResumeBitForBit) {
  const std::vector<std::vector<Setting>> runs = {
      hyena({}),
      hyena({{"precision.compute", "fp16"},
             {"precision.param", "fp16"},
             {"precision.policy", MANTISSA_SOURCE_DIR "/recipes/policies/hyena.toml"}}),
      hyena({{"data.objective", "masked"}, {"model.reverse_complement", "equivariant"}})};
  for (size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE(i);
    const std::filesystem::path whole = root_.path() / concat("whole", i);
    const std::filesystem::path stopped = root_.path() / concat("stopped", i);
    const LoopOutcome expected = start_run(config(runs[i]), whole);
    EXPECT_EQ(expected.ending, Ending::finished);
    EXPECT_LT(expected.summary.loss, std::log(16));
    std::atomic<int> stop{0};
    LoopOptions options;
    options.stop = &stop;
    options.observe = [&stop](const record::Event& event) {
      const auto* step = std::get_if<record::Step>(&event);
      stop = step != nullptr && step->step >= 5 ? 1 : stop.load();
    };
    EXPECT_EQ(start_run(config(runs[i]), stopped, options).ending, Ending::interrupted);
    EXPECT_EQ(resume_run(stopped).summary.loss, expected.summary.loss);
    expect_equal(final_state(stopped), final_state(whole));
  }
}

// HyenaDNA decays nothing of its filters.
TEST_F(MakeModelTest, WeightDecayLeavesFiltersAlone) {
  const Learner learner(config(kHyena));
  const auto& globs = learner.optimizer().options().no_decay;
  EXPECT_THAT(globs, ::testing::Contains("*.filter.*"));
  EXPECT_THAT(Learner(config()).optimizer().options().no_decay,
              ::testing::Not(::testing::Contains("*.filter.*")));
}

}  // namespace
}  // namespace mantissa::train
