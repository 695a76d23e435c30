#include "mantissa/train/microbatch.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/generator_state.h"
#include "mantissa/tensor/memory.h"
#include "mantissa/train/loop.h"
#include "mantissa/train/step.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

struct Search {
  int64_t chosen = 0;  // 0: none
  std::vector<int64_t> measured;
};

constexpr int64_t kGradients = 90;

// Peaks of the largest of lines, (constant, a sequence); the whole batch lacks some gradients.
Search search(int64_t batch, int64_t memory, const std::vector<std::pair<int64_t, int64_t>>& lines,
              int64_t lacks = 0) {
  Search result;
  const auto choice = largest_microbatch(batch, memory, [&](int64_t microbatch) {
    result.measured.push_back(microbatch);
    StepBytes bytes;
    for (const auto& [constant, slope] : lines) {
      bytes.peak = std::max(bytes.peak, constant + slope * microbatch);
    }
    bytes.peak -= microbatch == batch ? lacks : 0;
    bytes.gradients = kGradients;
    return bytes;
  });
  result.chosen = choice ? choice->microbatch : 0;
  return result;
}

TEST(LargestMicrobatch, MoreThanTheSystemGivesIsTooMuch) {
  for (const int64_t batch : {1, 2, 8}) {
    const auto choice = largest_microbatch(batch, 1000, [](int64_t microbatch) {
      MANTISSA_CHECK(microbatch == 1, tensor::memory::OutOfMemory, "no room for ", microbatch);
      return StepBytes{.peak = 100, .gradients = 10};
    });
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->microbatch, 1);
  }
}

TEST(LargestMicrobatch, IsTheLargestDivisorThatFits) {
  const std::vector<std::vector<std::pair<int64_t, int64_t>>> peaks = {
      {{100, 10}}, {{100, 1}, {0, 30}}, {{0, 10}, {50, 1}}, {{500, 0}, {0, 20}, {300, 4}}};
  for (const auto& lines : peaks) {
    for (const int64_t batch : {1, 2, 7, 12, 30, 64}) {
      for (int64_t memory = 0; memory < 1500; memory += 7) {
        int64_t expected = 0;
        for (int64_t i = 1; i <= batch; ++i) {
          int64_t peak = 0;
          for (const auto& [constant, slope] : lines) {
            peak = std::max(peak, constant + slope * i);
          }
          if (batch % i == 0 && peak <= memory) {
            expected = i;
          }
        }
        EXPECT_EQ(search(batch, memory, lines).chosen, expected) << batch << " " << memory;
      }
    }
  }
}

TEST(LargestMicrobatch, MeasuresFewAndNoneThatIsNotExpectedToFit) {
  const Search found = search(64, 100 + 10 * 20, {{100, 10}});
  EXPECT_EQ(found.chosen, 16);
  EXPECT_EQ(found.measured, std::vector<int64_t>({1, 2, 8, 16}));
  EXPECT_EQ(search(1 << 20, 1 << 30, {{100, 1}}).measured.size(), 12U);
}

// It may fit where the line says that it does not.
TEST(LargestMicrobatch, TheWholeBatchIsMeasuredWhereItLacksGradients) {
  for (const int64_t batch : {2, 3, 7, 16}) {
    const int64_t peak = 100 + 10 * batch - kGradients / 2;
    EXPECT_EQ(search(batch, peak, {{100, 10}}, kGradients / 2).chosen, peak >= 110 ? batch : 0);
  }
}

class MicrobatchTest : public TinyRunTest {
 protected:
  static void SetUpTestSuite() {
    ops::install_cpu_kernels();
    tensor::memory::install_counting_allocator();
  }
};

// To the byte: in all microbatches of a step, and in the steps after the first.
TEST_F(MicrobatchTest, AStepTakesWhatWasMeasured) {
  for (const char* compute : {"fp32", "bf16"}) {
    for (const int64_t microbatch : {1, 2, 4, 8}) {
      RunConfig run = config({{"precision.compute", compute}, {"train.batch", "8"}});
      const RunData data = open_data(run);
      (void)measure_step(run, data, microbatch);  // makes the tables of positions, which stay
      const int64_t before = tensor::memory::live_bytes().total();
      const StepBytes measured = measure_step(run, data, microbatch);
      EXPECT_EQ(tensor::memory::live_bytes().total(), before);
      run.train.microbatch = microbatch;
      run.train.explain_skips = false;
      Learner learner(run);
      const auto loader = make_loader(run, data);
      for (int step = 0; step < 3; ++step) {
        const auto batches = next_microbatches(run, *loader);
        tensor::memory::reset_peak();
        (void)training_step(learner.parts(), batches, learner.lr());
        EXPECT_EQ(tensor::memory::peak_bytes().total(), measured.peak)
            << compute << " " << microbatch << " step " << step;
      }
    }
  }
}

TEST_F(MicrobatchTest, TheMostThatFitsIsChosenAndTold) {
  RunConfig run = config({{"train.batch", "12"}, {"train.microbatch", "auto"}});
  const RunData data = open_data(run);
  for (const int64_t microbatch : {1, 2, 3, 4, 6, 12}) {
    const int64_t peak = measure_step(run, data, microbatch).peak;
    run.train.memory = std::to_string(peak) + "B";
    std::string told;
    const RunConfig chosen = with_microbatch(run, data, &told);
    EXPECT_EQ(chosen.train.microbatch, microbatch);
    EXPECT_EQ(chosen.train.memory, "");
    EXPECT_EQ(told, "train.microbatch auto is " + std::to_string(microbatch) +
                        " of the 12 sequences of a step, which takes " + std::to_string(peak) +
                        " bytes of tensors; train.memory gives " + std::to_string(peak));
  }
  run.train.memory = "";
  EXPECT_EQ(with_microbatch(run, data).train.microbatch, 12) << "the system has that much";
}

TEST_F(MicrobatchTest, TooLittleForOneSequenceIsOneLineWithTheNumberNeeded) {
  const RunConfig run = config({{"train.microbatch", "auto"}, {"train.memory", "100kB"}});
  const RunData data = open_data(run);
  const std::string needed = std::to_string(measure_step(run, data, 1).peak);
  EXPECT_EQ(message_of<Error>([&] { (void)with_microbatch(run, data); }),
            "train.microbatch auto: a step of one sequence a pass takes " + needed +
                " bytes of tensors, and train.memory gives 100000; give more, or use a smaller "
                "model, context or train.batch, or another train.recompute");
}

TEST_F(MicrobatchTest, ANumberStaysAsItIs) {
  const RunConfig run = config({{"train.microbatch", "2"}});
  EXPECT_EQ(to_toml(with_microbatch(run, open_data(run))), to_toml(run));
}

TEST_F(MicrobatchTest, MeasuringDrawsNoRandomNumbers) {
  const RunConfig run = config();
  const at::Tensor before = tensor::cpu_generator_state();
  (void)measure_step(run, open_data(run), 1);
  EXPECT_TRUE(at::equal(tensor::cpu_generator_state(), before));
}

// The summary has losses and validation to the last bit.
TEST_F(MicrobatchTest, ARunIsThatWithTheNumberInItsRunFile) {
  RunConfig run = config({{"train.microbatch", "auto"}, {"precision.compute", "fp16"}});
  {
    const RunData data = open_data(run);
    run.train.memory = std::to_string(measure_step(run, data, 2).peak) + "B";
  }
  const LoopOutcome automatic = start_run(run, root_.path() / "auto");
  run.train.microbatch = 2;
  run.train.memory = "";
  const LoopOutcome given = start_run(run, root_.path() / "given");
  EXPECT_EQ(automatic.summary.loss, given.summary.loss);
  EXPECT_EQ(automatic.summary.bits_per_base, given.summary.bits_per_base);
  EXPECT_EQ(to_toml(load_run(root_.path() / "auto")), to_toml(load_run(root_.path() / "given")));
}

}  // namespace
}  // namespace mantissa::train
