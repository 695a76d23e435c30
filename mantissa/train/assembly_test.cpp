#include "mantissa/train/assembly.h"

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/process_memory.h"
#include "mantissa/genome/markov.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using AssemblyTest = TinyRunTest;

TEST_F(AssemblyTest, LearnerTakesItsSettingsFromTheConfiguration) {
  const RunConfig run = config({{"precision.compute", "fp16"},
                                {"precision.param", "fp16"},
                                {"optim.kind", "sgd"},
                                {"optim.momentum", "0.8"},
                                {"scale.initial", "1024"}});
  Learner learner(run);
  EXPECT_EQ(learner.optimizer().options().kind, optim::Kind::sgd);
  EXPECT_EQ(learner.optimizer().options().momentum, 0.8);
  EXPECT_EQ(learner.scaler().value().item<float>(), 1024);
  EXPECT_EQ(learner.model().parameters()[0].value.scalar_type(), at::kHalf);
  EXPECT_EQ(learner.model().parameters()[0].value.size(1), 16);
  // Warm-up of two steps: the first is half way.
  EXPECT_GT(learner.lr(), 0);
  EXPECT_LT(learner.lr(), 1e-2);
}

TEST_F(AssemblyTest, LearnerStateOfAnotherModelIsRefusedByName) {
  const tensor::StateDict state = Learner(config()).state_dict();
  Learner wider(config({{"model.width", "32"}}));
  EXPECT_THAT([&] { wider.load_state_dict(state); },
              ::testing::ThrowsMessage<Corruption>(::testing::HasSubstr("embedding.weight")));
  Learner shallower(config({{"model.layers", "1"}}));
  Learner deeper(config({{"model.layers", "2"}}));
  EXPECT_THROW(shallower.load_state_dict(deeper.state_dict()), Corruption);
}

TEST_F(AssemblyTest, AnotherVocabularyIsRefused) {
  Learner learner(config());
  tensor::StateDict changed;
  const tensor::StateDict state = learner.state_dict();
  for (const auto& [name, value] : state.tensors()) {
    changed.set(name, value);
  }
  for (const auto& [name, scalar] : state.scalars()) {
    if (name == "vocabulary") {
      changed.set(name, std::string("protein-25:0123"));
    } else {
      std::visit([&, key = name](const auto& value) { changed.set(key, value); }, scalar);
    }
  }
  EXPECT_THAT([&] { learner.load_state_dict(changed); },
              ::testing::ThrowsMessage<Corruption>(
                  ::testing::HasSubstr("its vocabulary is protein-25:0123")));
}

TEST_F(AssemblyTest, AScopeThatIsNotOfTheModelIsRefusedByName) {
  const auto learner_with = [&](const char* scope) {
    return Learner(config({{"precision.compute", "bf16"},
                           {"precision.policy", concat("torch-fixed ", scope, "=fp32")}}));
  };
  EXPECT_NO_THROW(learner_with("scope:blocks.*.attention"));
  EXPECT_NO_THROW(learner_with("scope:head"));
  EXPECT_THAT([&] { learner_with("scope:blocks.0.attentoin"); },
              ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr(
                  "scope \"blocks.0.attentoin\" matches no scope of the model; did you mean "
                  "\"blocks.0.attention\"?")));
  EXPECT_NO_THROW(Learner(config(
      {{"precision.compute", "bf16"}, {"precision.policy", "genomics"}})));  // globs of the base
}

TEST_F(AssemblyTest, ABatchBeyondTheMemoryIsRefusedBeforeItIsRead) {
  if (!process_memory()) {
    GTEST_SKIP() << "this system does not tell how much memory it has";
  }
  const RunConfig run = config({{"train.batch", "16777216"}, {"data.context", "131072"}});
  const RunData data = open_data(config());
  EXPECT_THAT([&] { make_loader(run, data); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("use a smaller train.batch")));
}

TEST_F(AssemblyTest, DataThatIsRefusedIsNamed) {
  const auto refusal = [&](const std::string& fasta, const std::vector<Setting>& settings) {
    std::filesystem::remove(root_ / "own.fa.fai");  // of the one before
    std::vector<Setting> all = {{"data.fasta", root_.write("own.fa", fasta).string()}};
    all.insert(all.end(), settings.begin(), settings.end());
    return message_of<InvalidArgument>([&] { (void)open_data(config(all)); });
  };
  const std::string where = (root_ / "own.fa").string() + ": ";
  const std::string known(100, 'A');
  const std::string three = ">a\n" + known + "\n>b\nACGT\n>none\n";
  using ::testing::AllOf;
  using ::testing::EndsWith;
  using ::testing::StartsWith;
  EXPECT_THAT(refusal(">a\n" + std::string(100, 'N') + "\n", {{"data.validation", "[]"}}),
              AllOf(StartsWith(where + "training data: windows: "),
                    EndsWith("has 0 bases, a window needs 33; give a sequence whose bases are "
                             "known")));
  EXPECT_THAT(refusal(three, {{"data.validation", "[\"b\"]"}}),
              AllOf(StartsWith(where + "validation data (data.validation): windows: "),
                    EndsWith("has 4 bases, a window needs 33; use a shorter context or a longer "
                             "sequence")));
  EXPECT_THAT(refusal(three, {{"data.validation", "[]"}, {"data.test", "[\"b\"]"}}),
              StartsWith(where + "test data (data.test): windows: "));
  EXPECT_THAT(refusal(three, {{"data.validation", "[\"none\"]"}}),
              StartsWith(where + "split: validation names \"none\", which has no bases"));
  EXPECT_THAT(refusal(">a\n>b\n", {{"data.validation", "[]"}}),
              StartsWith(where + "split: the genome has no bases; "));
}

TEST_F(AssemblyTest, MarkovBaselineOfLambdaIsThePublishedOne) {
  const RunConfig run = config({{"data.validation", "[\"NC_001416.1:43653-48502\"]"}});
  const RunData data = open_data(run);
  EXPECT_NEAR(markov_bits_per_base(data, data.split.validation), 1.978, 0.0005);
  EXPECT_TRUE(std::isnan(markov_bits_per_base(data, {})));
}

TEST_F(AssemblyTest, TheBestMarkovChainIsThatOfTheBaseline) {
  const RunData data = open_data(config());
  const auto chain = best_markov_chain(data);
  ASSERT_TRUE(chain);
  const auto scores = genome::markov(*data.genome, data.split.train, data.split.validation);
  EXPECT_EQ(chain->order(), scores.best_order());
  std::string letters(850, '\0');
  data.genome->fetch(data.split.validation[0],
                     {reinterpret_cast<uint8_t*>(letters.data()), letters.size()});
  double bits = 0;
  for (const double log_p : chain->log_probabilities(letters)) {
    bits -= log_p / std::numbers::ln2 / 850;
  }
  // Means of 850 terms below 4, each of a few roundings.
  EXPECT_NEAR(bits, markov_bits_per_base(data, data.split.validation), 1e-12);
}

TEST_F(AssemblyTest, NothingHeldOutHasNoBestMarkovChain) {
  RunData data = open_data(config());
  data.split.validation.clear();
  EXPECT_FALSE(best_markov_chain(data));
}

}  // namespace
}  // namespace mantissa::train
