#include "mantissa/data/loader.h"

#include <atomic>
#include <string>

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/data/genome_dataset.h"

namespace mantissa::data {
namespace {

using genome::Genome;

std::shared_ptr<const Dataset> example(Objective objective = Objective::masked) {
  Random random(8, 0);
  std::string text = ">a\n";
  for (int i = 0; i < 1000; ++i) {
    text += "ACGT"[random.below(4)];
  }
  const auto genome = std::make_shared<const Genome>(Genome::parse(text));
  return std::make_shared<GenomeDataset>(
      genome, std::vector<genome::Interval>{{0, 0, 1000}},
      GenomeDatasetOptions{.context = 16, .stride = 7, .objective = objective});
}

constexpr SamplerOptions kSampler{.seed = 5, .strands = Strands::both};

void expect_equal(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.index, b.index);
  EXPECT_TRUE(at::equal(a.tokens, b.tokens)) << a.index;
  EXPECT_TRUE(at::equal(a.targets, b.targets)) << a.index;
  EXPECT_EQ(a.positions, b.positions) << a.index;
}

// Fails on one window; counts the windows it was asked for.
class FailingDataset : public Dataset {
 public:
  explicit FailingDataset(uint64_t bad_number) : bad_number_(bad_number) {}
  uint64_t size() const override { return 100; }
  int64_t context() const override { return 2; }
  Position fill(const Sample& sample, std::span<int64_t> /*tokens*/,
                std::span<int64_t> /*targets*/) const override {
    ++asked;
    MANTISSA_CHECK(sample.number != bad_number_, IoError, "disk: sample ", sample.number,
                   " is gone; look for it");
    return {};
  }
  mutable std::atomic<uint64_t> asked{0};

 private:
  uint64_t bad_number_;
};

TEST(Loader, OrderDoesNotDependOnThreadsOrPrefetch) {
  Loader one(example(), kSampler, {.batch = 8, .threads = 1, .prefetch = 1});
  Loader three(example(), kSampler, {.batch = 8, .threads = 3, .prefetch = 5});
  for (int i = 0; i < 60; ++i) {
    expect_equal(one.next(), three.next());
  }
}

TEST(Loader, BatchesHaveTheSamplersWindowsAcrossEpochs) {
  const auto dataset = example(Objective::causal);
  Loader loader(dataset, kSampler, {.batch = 50, .threads = 2});
  Sampler sampler(dataset->size(), kSampler);
  for (uint64_t i = 0; i < 7; ++i) {
    const Batch batch = loader.next();
    EXPECT_EQ(batch.index, i);
    std::vector<Sample> samples;
    for (int row = 0; row < 50; ++row) {
      samples.push_back(sampler.next());
    }
    expect_equal(batch, make_batch(fill_buffer(*dataset, samples), i));
  }
  EXPECT_EQ(loader.epoch(), 350 / dataset->size());
}

TEST(Loader, ItsStateIsTheBatchToComeNotWhatWasMadeAhead) {
  Loader whole(example(), kSampler, {.batch = 9, .threads = 2, .prefetch = 6});
  for (int taken = 0; taken < 40; ++taken) {
    if (taken % 13 == 5) {
      Loader resumed(example(), {.seed = 77, .strands = Strands::both},
                     {.batch = 9, .threads = 3, .prefetch = 2});
      (void)resumed.next();
      resumed.load_state_dict(whole.state_dict());
      Loader copy(example(), kSampler, {.batch = 9});
      copy.load_state_dict(whole.state_dict());
      for (int i = 0; i < 25; ++i) {
        expect_equal(resumed.next(), copy.next());
      }
    }
    (void)whole.next();
  }
}

TEST(Loader, ResumedItGoesOnAsTheUninterruptedOne) {
  Loader whole(example(), kSampler, {.batch = 9, .threads = 2});
  Loader stopped(example(), kSampler, {.batch = 9});
  for (int i = 0; i < 21; ++i) {
    (void)whole.next();
    (void)stopped.next();
  }
  Loader resumed(example(), {.seed = 1, .strands = Strands::both}, {.batch = 9});
  resumed.load_state_dict(stopped.state_dict());
  for (int i = 0; i < 21; ++i) {
    expect_equal(resumed.next(), whole.next());
  }
}

TEST(Loader, ARefusedStateLeavesItAsItWas) {
  Loader loader(example(), kSampler, {.batch = 4});
  Loader other(example(), kSampler, {.batch = 4});
  (void)loader.next();
  (void)other.next();
  tensor::StateDict state;
  state.set("num_windows", int64_t{3});
  EXPECT_THROW(loader.load_state_dict(state), Corruption);
  expect_equal(loader.next(), other.next());
}

TEST(Loader, WhatAThreadThrowsReachesNextInItsPlace) {
  Loader loader(std::make_shared<FailingDataset>(7), {}, {.batch = 3, .threads = 3});
  (void)loader.next();
  (void)loader.next();
  for (int again = 0; again < 2; ++again) {
    try {
      (void)loader.next();
      FAIL() << "expected IoError";
    } catch (const IoError& error) {
      EXPECT_STREQ(error.what(), "disk: sample 7 is gone; look for it");
    }
  }
  EXPECT_EQ(loader.state_dict().integer("position"), 6);
}

TEST(Loader, WorksNoFurtherAheadThanPrefetch) {
  const auto dataset = std::make_shared<FailingDataset>(1000);
  {
    Loader loader(dataset, {}, {.batch = 5, .threads = 3, .prefetch = 2});
    for (int i = 0; i < 4; ++i) {
      (void)loader.next();
    }
  }
  EXPECT_GE(dataset->asked, 4U * 5);
  EXPECT_LE(dataset->asked, (4U + 2) * 5);
}

TEST(Loader, StopsAtAnyTime) {
  const auto dataset = example();
  for (int taken = 0; taken < 40; ++taken) {
    Loader loader(dataset, kSampler, {.batch = 3, .threads = 1 + taken % 4, .prefetch = 3});
    for (int i = 0; i < taken % 5; ++i) {
      (void)loader.next();
    }
  }
}

TEST(Loader, CountsTheTimeItWaited) {
  Loader loader(example(), kSampler, {.batch = 512});
  EXPECT_EQ(loader.wait_s(), 0);
  double before = 0;
  for (int i = 0; i < 20; ++i) {
    (void)loader.next();
    EXPECT_GE(loader.wait_s(), before);
    before = loader.wait_s();
  }
}

TEST(Loader, RefusesSettingsOutOfRange) {
  const auto error = [](const LoaderOptions& options) -> std::string {
    try {
      const Loader loader(example(), {}, options);
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "nothing thrown";
  };
  EXPECT_EQ(error({.batch = 0}), "loader: batch 0; valid: 1 or more windows");
  EXPECT_EQ(error({.threads = 0}), "loader: threads 0; valid: 1 or more");
  EXPECT_EQ(error({.prefetch = -1}), "loader: prefetch -1; valid: 1 or more batches");
  try {
    const Loader loader(nullptr, {}, {});
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(), "loader: no dataset; make one first");
  }
}

}  // namespace
}  // namespace mantissa::data
