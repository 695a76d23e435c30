#include "mantissa/data/sampler.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::data {
namespace {

using tensor::StateDict;

bool same(const Sample& a, const Sample& b) {
  return a.number == b.number && a.window == b.window && a.strand == b.strand;
}

StateDict state_of(int64_t epoch, int64_t position, int64_t num_windows = 10,
                   const std::string& strands = "both") {
  StateDict state;
  state.set("seed", int64_t{-3});
  state.set("epoch", epoch);
  state.set("position", position);
  state.set("num_windows", num_windows);
  state.set("strands", strands);
  return state;
}

std::string load_error(const StateDict& state) {
  Sampler sampler(10, {.seed = 1, .strands = Strands::both});
  try {
    sampler.load_state_dict(state);
  } catch (const Corruption& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(Sampler, EachEpochHasEveryWindowOnceInItsOwnOrder) {
  Sampler sampler(50, {.seed = 4});
  std::vector<uint64_t> before;
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<uint64_t> order;
    std::vector<int> times(50);
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(sampler.epoch(), epoch);
      const Sample sample = sampler.next();
      order.push_back(sample.window);
      ++times.at(sample.window);
    }
    EXPECT_EQ(times, std::vector<int>(50, 1));
    EXPECT_NE(order, before);
    before = order;
  }
}

TEST(Sampler, ReversesHalfOfTheSamplesWithinFiveStandardDeviations) {
  const Sampler both(10, {.seed = 4, .strands = Strands::both});
  const Sampler forward(10, {.seed = 4});
  constexpr int kSamples = 10000;
  int reversed = 0;
  for (uint64_t i = 0; i < kSamples; ++i) {
    reversed += both.at(i).strand == genome::Strand::reverse ? 1 : 0;
    EXPECT_EQ(forward.at(i).strand, genome::Strand::forward);
    EXPECT_EQ(forward.at(i).window, both.at(i).window);
  }
  EXPECT_NEAR(reversed, kSamples / 2.0, 5 * std::sqrt(kSamples / 4.0));
}

TEST(Sampler, ResumesBitForBitAtAnyPosition) {
  Sampler whole(7, {.seed = ~uint64_t{5}, .strands = Strands::both});
  for (int taken = 0; taken < 30; ++taken) {
    Sampler resumed(7, {.seed = 1, .strands = Strands::both});
    resumed.load_state_dict(whole.state_dict());
    EXPECT_EQ(resumed.epoch(), static_cast<uint64_t>(taken) / 7);
    EXPECT_EQ(resumed.position(), static_cast<uint64_t>(taken) % 7);
    Sampler copy = whole;
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(same(resumed.next(), copy.next())) << taken;
    }
    whole.next();
  }
}

TEST(Sampler, RefusesTheStateOfOtherData) {
  EXPECT_EQ(load_error(state_of(2, 3)), "nothing thrown");
  EXPECT_EQ(load_error(state_of(2, 3, 11)),
            "sampler: the state is of 11 windows, the data has 10; resume with the same data, "
            "split, context and stride");
  EXPECT_EQ(load_error(state_of(2, 3, 10, "forward")),
            "sampler: the state is of strands \"forward\", the setting is \"both\"; resume with "
            "the setting that was saved");
  const std::string damaged = " of 10; the checkpoint is damaged";
  EXPECT_EQ(load_error(state_of(2, 10)), "sampler: the state is at epoch 2, position 10" + damaged);
  EXPECT_EQ(load_error(state_of(-1, 3)), "sampler: the state is at epoch -1, position 3" + damaged);
  EXPECT_EQ(load_error(state_of(INT64_MAX, 3)),
            "sampler: the state is at epoch 9223372036854775807, position 3" + damaged);
  EXPECT_EQ(load_error({}),
            "state: no entry \"num_windows\"; the checkpoint is of another model or another "
            "version");
}

TEST(Sampler, RefusesNoWindows) {
  try {
    const Sampler sampler(0, {});
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "sampler: 0 windows; give a sequence that holds at least one");
  }
}

}  // namespace
}  // namespace mantissa::data
