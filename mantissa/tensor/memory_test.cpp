#include "mantissa/tensor/memory.h"

#include <optional>
#include <thread>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "mantissa/base/error.h"
#include "mantissa/base/process_memory.h"
#include "mantissa/base/random.h"

namespace mantissa::tensor::memory {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Lives from before the installation to the end of the process: its bytes are never counted, and
// freeing it after main() must not crash.
at::Tensor& early_tensor() {
  static at::Tensor tensor = at::ones({100});
  return tensor;
}

class MemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    (void)early_tensor();
    install_counting_allocator();
    start_ = live_bytes();
    reset_peak();
  }

  // Live bytes since the start of the test.
  int64_t live(Category category) const { return live_bytes().of(category) - start_.of(category); }
  int64_t live_total() const { return live_bytes().total() - start_.total(); }

  Bytes start_;
};

TEST(Memory, RefusesToAnswerWhileNothingIsCounted) {
  if (is_counting()) {
    GTEST_SKIP() << "an earlier test has installed the allocator, for good";
  }
  try {
    (void)live_bytes();
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "memory: nothing is counted; call install_counting_allocator() before the first "
                 "tensor");
  }
  EXPECT_THROW((void)peak_bytes(), InvalidArgument);
  EXPECT_THROW(reset_peak(), InvalidArgument);
}

TEST_F(MemoryTest, CountsTheBytesOfATensorToTheLast) {
  at::Tensor tensor = at::empty({3, 7}, at::kFloat);
  EXPECT_EQ(live_total(), 3 * 7 * 4);
  const at::Tensor view = tensor.narrow(0, 1, 1);
  tensor.reset();
  EXPECT_EQ(live_total(), 3 * 7 * 4);  // the view keeps the storage
}

TEST_F(MemoryTest, FreesWhatItCounted) {
  { const at::Tensor tensor = at::empty({1000}, at::kByte); }
  EXPECT_EQ(live_total(), 0);
  EXPECT_EQ(peak_bytes().total() - start_.total(), 1000);
}

TEST_F(MemoryTest, InstallingAgainDoesNotCountTwice) {
  install_counting_allocator();
  const at::Tensor tensor = at::empty({10}, at::kByte);
  EXPECT_EQ(live_total(), 10);
}

TEST_F(MemoryTest, TensorsAreAlignedAsBefore) {
  for (int64_t size = 1; size < 300; ++size) {
    const at::Tensor tensor = at::empty({size}, at::kByte);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0U);
  }
}

TEST_F(MemoryTest, ScopesNestAndAreOfOneThread) {
  std::vector<at::Tensor> kept;
  {
    const CategoryScope weights(Category::weights);
    kept.push_back(at::empty({1}, at::kByte));
    {
      const CategoryScope activations(Category::activations);
      kept.push_back(at::empty({10}, at::kByte));
    }
    kept.push_back(at::empty({100}, at::kByte));
    std::thread([&] { kept.push_back(at::empty({1000}, at::kByte)); }).join();
  }
  kept.push_back(at::empty({10000}, at::kByte));
  EXPECT_EQ(live(Category::weights), 101);
  EXPECT_EQ(live(Category::activations), 10);
  EXPECT_EQ(live(Category::other), 11000);
}

TEST_F(MemoryTest, AFreeGoesToTheCategoryOfTheAllocation) {
  at::Tensor tensor;
  {
    const CategoryScope scope(Category::optimizer);
    tensor = at::empty({64}, at::kByte);
  }
  const CategoryScope scope(Category::weights);
  tensor.reset();
  EXPECT_EQ(live(Category::optimizer), 0);
  EXPECT_EQ(live(Category::weights), 0);
}

TEST_F(MemoryTest, RetagMovesTheWholeStorage) {
  at::Tensor tensor = at::empty({8, 8}, at::kByte);
  retag(tensor.narrow(0, 2, 1), Category::gradients);
  EXPECT_EQ(live(Category::gradients), 64);
  EXPECT_EQ(live(Category::other), 0);
  tensor.reset();
  EXPECT_EQ(live_total(), 0);
}

TEST_F(MemoryTest, RetagLeavesAloneWhatIsNotCounted) {
  char bytes[16];
  retag(early_tensor(), Category::weights);
  retag(at::Tensor(), Category::weights);
  retag(at::empty({0}), Category::weights);
  retag(at::empty({4}, at::TensorOptions().device(at::kMeta)), Category::weights);
  retag(at::from_blob(bytes, {16}, at::kByte), Category::weights);
  EXPECT_EQ(live(Category::weights), 0);
}

TEST_F(MemoryTest, EmptyTensorsAndResizesAreExact) {
  at::Tensor tensor = at::empty({0}, at::kFloat);
  EXPECT_EQ(live_total(), 0);
  tensor.resize_({100});
  EXPECT_EQ(live_total(), 400);
  tensor.resize_({10});  // LibTorch keeps the storage
  EXPECT_EQ(live_total(), 400);
  tensor.resize_({1000});
  EXPECT_EQ(live_total(), 4000);
}

TEST_F(MemoryTest, ThePeakIsOneMomentOfAllCategories) {
  {
    const CategoryScope scope(Category::weights);
    const at::Tensor early = at::empty({500}, at::kByte);  // 500 in all, freed before the peak
  }
  {
    const at::Tensor a = at::empty({300}, at::kByte);
    const CategoryScope scope(Category::activations);
    const at::Tensor b = at::empty({400}, at::kByte);
  }
  const Bytes peak = peak_bytes();
  EXPECT_EQ(peak.total() - start_.total(), 700);
  EXPECT_EQ(peak.of(Category::weights) - start_.of(Category::weights), 0);
  EXPECT_EQ(peak.of(Category::activations) - start_.of(Category::activations), 400);
  reset_peak();
  EXPECT_EQ(peak_bytes(), live_bytes());
}

// A gradient is allocated by backward as something else and is known as one a moment later.
TEST_F(MemoryTest, ARetagAtThePeakIsInThePeak) {
  const at::Tensor tensor = at::empty({300}, at::kByte);
  retag(tensor, Category::gradients);
  EXPECT_EQ(peak_bytes().of(Category::gradients) - start_.of(Category::gradients), 300);
}

TEST_F(MemoryTest, AgreesWithABookKeptBesideItThroughRandomWork) {
  const uint64_t seed = 11;
  SCOPED_TRACE(seed);
  Random random(seed, 0);
  std::vector<std::pair<at::Tensor, Category>> tensors;
  Bytes book;
  Bytes peak;
  for (int i = 0; i < 20000; ++i) {
    const Category category = kCategories[random.below(kCategories.size())];
    const uint64_t action = random.below(3);
    if (action == 0 || tensors.empty()) {
      const CategoryScope scope(category);
      tensors.emplace_back(at::empty({static_cast<int64_t>(random.below(1000))}, at::kByte),
                           category);
      book.by_category[static_cast<size_t>(category)] += tensors.back().first.numel();
    } else {
      auto& [tensor, tag] = tensors[random.below(tensors.size())];
      book.by_category[static_cast<size_t>(tag)] -= tensor.numel();
      if (action == 1) {
        retag(tensor, category);
        tag = category;
        book.by_category[static_cast<size_t>(tag)] += tensor.numel();
      } else {
        std::swap(tensors.back().first, tensor);
        std::swap(tensors.back().second, tag);
        tensors.pop_back();
      }
    }
    if (action != 2 && book.total() >= peak.total()) {
      peak = book;
    }
  }
  for (const Category category : kCategories) {
    EXPECT_EQ(live(category), book.of(category)) << name_of(category);
    EXPECT_EQ(peak_bytes().of(category) - start_.of(category), peak.of(category))
        << name_of(category);
  }
}

TEST_F(MemoryTest, StaysExactWhileManyThreadsAllocateAndFreeForEachOther) {
  constexpr int kThreads = 4;
  std::vector<std::vector<at::Tensor>> kept(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t, &kept] {
      const CategoryScope scope(kCategories[static_cast<size_t>(t)]);
      for (int i = 0; i < 2000; ++i) {
        at::Tensor tensor = at::empty({1 + i % 97}, at::kByte);
        if (i % 4 == 0) {
          kept[static_cast<size_t>(t)].push_back(tensor);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  int64_t expected = 0;
  for (int i = 0; i < 2000; i += 4) {
    expected += 1 + i % 97;
  }
  for (size_t t = 0; t < kThreads; ++t) {
    EXPECT_EQ(live(kCategories[t]), expected);
  }
  // At its highest all kept tensors and at most one more of each thread were live.
  const int64_t peak = peak_bytes().total() - start_.total();
  EXPECT_GE(peak, kThreads * expected);
  EXPECT_LE(peak, kThreads * (expected + 97));
  std::thread([&] { kept.clear(); }).join();
  EXPECT_EQ(live_total(), 0);
}

TEST_F(MemoryTest, GradientsAreTaggedByBackward) {
  const at::Tensor weight = at::ones({10}).requires_grad_();
  const at::Tensor bias = at::ones({3}).requires_grad_();
  tag_gradients({{"weight", weight}, {"bias", bias}});
  weight.mul(2).sum().add(bias.mul(bias).sum()).backward();
  EXPECT_EQ(live(Category::gradients), 13 * 4);
  weight.mul(3).sum().add(bias.mul(bias).sum()).backward();  // accumulates in place
  EXPECT_EQ(live(Category::gradients), 13 * 4);
  EXPECT_EQ(weight.grad()[0].item<float>(), 5);
  weight.mutable_grad().reset();
  EXPECT_EQ(live(Category::gradients), 3 * 4);
}

TEST_F(MemoryTest, AHookThatAParameterHasIsKept) {
  struct Counter : torch::autograd::PostAccumulateGradHook {
    explicit Counter(int& count) : calls(count) {}
    void operator()(const torch::autograd::Variable&) override { ++calls; }
    int& calls;
  };
  int calls = 0;
  const at::Tensor weight = at::ones({10}).requires_grad_();
  torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<Counter>(calls));
  tag_gradients({{"weight", weight}});
  weight.mul(2).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(live(Category::gradients), 40);
}

TEST_F(MemoryTest, AParameterWithoutGradientIsRefused) {
  try {
    tag_gradients({{"blocks.0.scale", at::ones({1})}});
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "memory: parameter \"blocks.0.scale\" gets no gradient; pass leaves that require "
                 "one");
  }
}

// LibTorch asserts that the pointer of such an allocation is its own context.
TEST_F(MemoryTest, RawAllocationsWork) {
  void* bytes = c10::GetCPUAllocator()->raw_allocate(123);
  EXPECT_EQ(live_total(), 123);
  c10::GetCPUAllocator()->raw_deallocate(bytes);
  EXPECT_EQ(live_total(), 0);
}

TEST_F(MemoryTest, NamesAreThoseOfTheSummary) {
  const at::Tensor tensor = at::empty({5}, at::kByte);
  const std::map<std::string, int64_t> names = live_bytes().by_name();
  EXPECT_EQ(names.size(), 5U);
  EXPECT_EQ(names.at("other"), live_bytes().of(Category::other));
}

TEST_F(MemoryTest, MoreThanTheSystemCanGiveIsRefusedInOneLine) {
  const std::optional<ProcessMemory> memory = process_memory();
  if (!memory) {
    GTEST_SKIP() << "this system does not tell how much memory it has";
  }
  // All that is available, of which some is kept for what is not tensors.
  EXPECT_THAT([&] { (void)at::empty({memory->available_bytes}, at::kByte); },
              ThrowsMessage<Error>(
                  HasSubstr("use a smaller train.batch, train.microbatch, model or context")));
  EXPECT_EQ(live_total(), 0);
  const at::Tensor small = at::empty({100});  // and the next one is served
  EXPECT_EQ(live_total(), 400);
}

}  // namespace
}  // namespace mantissa::tensor::memory
