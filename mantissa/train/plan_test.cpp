#include "mantissa/train/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using numerics::Format;
using tensor::memory::Category;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// 100 weights, moments of 800, then a step: activations up to 1000, which go as gradients come.
Footprint by_hand() {
  Footprint result;
  result.parameters = 100;
  result.weights = 400;
  result.moments = 800;
  result.gradients = 400;
  result.data = 16;
  result.unit_weights = 200;
  result.unit_gradients = 200;
  result.changes = {{Category::weights, 400}, {Category::optimizer, 800}};
  result.step = 2;
  for (const tensor::memory::Change& change : {tensor::memory::Change{Category::activations, 1000},
                                               {Category::casts, 80},
                                               {Category::other, 60},
                                               {Category::activations, -300},
                                               {Category::gradients, 400},
                                               {Category::other, -60},
                                               {Category::activations, -700}}) {
    result.changes.push_back(change);
  }
  return result;
}

TEST(RankBytes, AreOfTheMomentWhenARankHasMost) {
  // Whole gradients: when the first 300 of the activations have gone.
  const RankBytes whole = rank_bytes(by_hand(), {1, 0});
  EXPECT_EQ(whole.activations, 700);
  EXPECT_EQ(whole.gradients, 400);
  EXPECT_EQ(whole.temporaries, 60);
  EXPECT_EQ(whole.total(), 400 + 800 + 400 + 700 + 80 + 60 + 16 + whole.fragmentation);
  EXPECT_EQ(whole.fragmentation, 2456 / 32);
  EXPECT_EQ(whole.state, 1600);
  // A quarter of them: when all activations are there.
  const RankBytes quarter = rank_bytes(by_hand(), {4, 2});
  EXPECT_EQ(quarter.activations, 1000);
  EXPECT_EQ(quarter.gradients, 0);
}

TEST(RankBytes, EachStageSharesOutMore) {
  const Footprint footprint = by_hand();
  EXPECT_EQ(rank_bytes(footprint, {4, 0}).state, 1600);
  EXPECT_EQ(rank_bytes(footprint, {4, 1}).state, 400 + 200 + 400);
  EXPECT_EQ(rank_bytes(footprint, {4, 2}).state, 400 + 200 + 100);
  EXPECT_EQ(rank_bytes(footprint, {4, 3}).state, 100 + 200 + 100);
  EXPECT_EQ(rank_bytes(footprint, {3, 3}).weights, 134);  // rounded up
}

TEST(RankBytes, GathersAndBucketsAreThoseOfAUnit) {
  const Footprint footprint = by_hand();
  EXPECT_EQ(rank_bytes(footprint, {1, 0}).buckets, 0);
  EXPECT_EQ(rank_bytes(footprint, {4, 0}).buckets, 400);  // all, being less than 25 MiB
  EXPECT_EQ(rank_bytes(footprint, {4, 2}).gathers, 0);
  EXPECT_EQ(rank_bytes(footprint, {4, 3}).gathers, 200);
  EXPECT_EQ(rank_bytes(footprint, {4, 3}).casts, 0);
  Footprint large = footprint;
  large.gradients = int64_t{1} << 30;
  large.unit_gradients = int64_t{26} << 20;
  EXPECT_EQ(rank_bytes(large, {4, 1}).buckets, int64_t{25} << 20);
  EXPECT_EQ(rank_bytes(large, {4, 2}).buckets, int64_t{26} << 20);
}

TEST(RankBytes, RefusesWhatIsNoSharding) {
  EXPECT_THAT(
      [] {
        (void)rank_bytes(by_hand(), {0, 0});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("plan: ranks are 0; pass 1 or more")));
  EXPECT_THAT(
      [] {
        (void)rank_bytes(by_hand(), {2, 4});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("plan: zero is 4; valid: 0 1 2 3")));
}

DeviceSpec device_of(const std::map<Format, double>& flops, double bandwidth) {
  DeviceSpec device = {"x", "", {1e9, "s"}, {bandwidth, "s"}, {}};
  for (const auto& [format, value] : flops) {
    device.flops[format] = {value, "s"};
  }
  return device;
}

TEST(StepTime, IsTheLongerOfProductsAndMemory) {
  Footprint footprint = by_hand();
  footprint.flops = {{Format::bf16, 6e12}, {Format::fp32, 1e12}};
  footprint.allocated = 5000;
  const DeviceSpec device = device_of({{Format::bf16, 3e12}, {Format::fp32, 1e12}}, 1000);
  const StepTime time = step_time(footprint, {1, 0}, Format::bf16, device);
  EXPECT_DOUBLE_EQ(time.products_s, 3);
  // What is made, weights and moments written and read, weights read forward and backward.
  EXPECT_DOUBLE_EQ(time.memory_s, (2 * 5000 + 2 * (400 + 800) + 2 * 400) / 1000.0);
  EXPECT_DOUBLE_EQ(time.bound_s(), time.memory_s);
  EXPECT_EQ(time.missing, "");
}

TEST(StepTime, OfFormatsWithoutARateTheFastestBoundsAndThatOfTheRunIsMissing) {
  Footprint footprint = by_hand();
  footprint.flops = {{Format::bf16, 6e12}, {Format::fp32, 3e12}};
  const DeviceSpec bf16 = device_of({{Format::bf16, 3e12}}, 1e12);
  EXPECT_DOUBLE_EQ(step_time(footprint, {1, 0}, Format::bf16, bf16).products_s, 3);
  EXPECT_EQ(step_time(footprint, {1, 0}, Format::fp16, bf16).missing, "no rate of fp16 products");
  footprint.flops = {{Format::fp32, 3e12}};
  const DeviceSpec tf32 = device_of({{Format::fp32, 1e12}, {Format::tf32, 6e12}}, 1e12);
  EXPECT_DOUBLE_EQ(step_time(footprint, {1, 0}, Format::tf32, tf32).products_s, 0.5);
}

// 2 (N - 1) / N of the gradients; with stage 3 (N - 1) / N of gradients and twice the weights.
TEST(SentBytes, AreThoseOfThePaper) {
  EXPECT_DOUBLE_EQ(sent_bytes(by_hand(), {1, 0}), 0);
  EXPECT_DOUBLE_EQ(sent_bytes(by_hand(), {4, 0}), 2 * 0.75 * 400);
  EXPECT_DOUBLE_EQ(sent_bytes(by_hand(), {4, 2}), 2 * 0.75 * 400);
  EXPECT_DOUBLE_EQ(sent_bytes(by_hand(), {4, 3}), 0.75 * (400 + 2 * 400));
}

class PlanTest : public TinyRunTest {
 protected:
  PlanTest() { ops::install_cpu_kernels(); }

  RunConfig with(const std::vector<Setting>& settings) const {
    const std::vector<Setting> all = {{"model.layers", "16"},
                                      {"model.width", "32"},
                                      {"data.context", "256"},
                                      {"precision.compute", "bf16"},
                                      {"precision.policy", "lean"}};
    return config(overridden(all, settings));
  }

  int64_t total(const std::vector<Setting>& settings, const Sharding& sharding) const {
    return rank_bytes(footprint(with(settings)), sharding).total();
  }

  Configure configure_ = [this](const std::vector<Setting>& settings) { return with(settings); };
};

TEST_F(PlanTest, RecomputationComesFirstAndNoMoreOfItThanIsNeeded) {
  const auto check = [this](const char* level) {
    const int64_t memory = total({{"train.recompute", level}}, {1, 0});
    const auto remedy = cheapest_remedy(configure_, {1, 0}, memory);
    ASSERT_TRUE(remedy) << level;
    EXPECT_EQ(remedy->change.text, concat("--recompute ", level));
    EXPECT_EQ(remedy->bytes.total(), memory);
  };
  check("elementwise");
  check("block");
  check("full");
}

TEST_F(PlanTest, ThenASmallerMicrobatch) {
  const Setting full = {"train.recompute", "full"};
  const Configure configure = [&](const std::vector<Setting>& settings) {
    return with(overridden({full}, settings));
  };
  const int64_t memory = total({full, {"train.microbatch", "2"}}, {1, 0});
  const auto remedy = cheapest_remedy(configure, {1, 0}, memory);
  ASSERT_TRUE(remedy);
  EXPECT_EQ(remedy->change.text, "--set train.microbatch=2");
  EXPECT_EQ(remedy->bytes.total(), memory);
}

// Each on top of the one before, where none alone is enough.
TEST_F(PlanTest, ThenOneOnTopOfTheOther) {
  const int64_t both = total({{"train.recompute", "full"}, {"train.microbatch", "1"}}, {1, 0});
  const auto remedy = cheapest_remedy(configure_, {1, 0}, both);
  ASSERT_TRUE(remedy);
  EXPECT_EQ(remedy->change.text, "--recompute full --set train.microbatch=1");
  EXPECT_LE(remedy->bytes.total(), both);
}

// A model whose state is most of what it takes.
TEST_F(PlanTest, ThenStagesAndMoreRanks) {
  const std::vector<Setting> large = {{"model.width", "128"},
                                      {"data.context", "16"},
                                      {"train.microbatch", "1"},
                                      {"train.recompute", "full"}};
  const Configure configure = [&](const std::vector<Setting>& settings) {
    return with(overridden(large, settings));
  };
  const int64_t of_stage = total(large, {2, 3});
  const auto stage = cheapest_remedy(configure, {2, 1}, of_stage);
  ASSERT_TRUE(stage);
  EXPECT_EQ(stage->change.text, "--zero 3");
  const int64_t of_ranks = total(large, {16, 3});
  const auto ranks = cheapest_remedy(configure, {2, 3}, of_ranks);
  ASSERT_TRUE(ranks);
  EXPECT_GT(ranks->change.sharding.ranks, 2);
  EXPECT_LE(ranks->change.sharding.ranks, 16);
  EXPECT_LE(ranks->bytes.total(), of_ranks);
}

TEST_F(PlanTest, NothingHelpsBelowWhatOneSequenceTakes) {
  EXPECT_FALSE(cheapest_remedy(configure_, {2, 0}, 1000));
}

TEST_F(PlanTest, AutoIsTheLargestMicrobatchThatFits) {
  const int64_t two = total({{"train.microbatch", "2"}}, {1, 0});
  EXPECT_EQ(fitting_microbatch(configure_, {1, 0}, two).value, "2");
  EXPECT_EQ(fitting_microbatch(configure_, {1, 0}, int64_t{1} << 40).value, "4");
  EXPECT_EQ(fitting_microbatch(configure_, {1, 0}, 1000).value, "1");
}

}  // namespace
}  // namespace mantissa::train
