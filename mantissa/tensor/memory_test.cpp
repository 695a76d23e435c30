#include "mantissa/tensor/memory.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <string>
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
#include "mantissa/tensor/scope.h"

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
  EXPECT_THROW((void)peak(), InvalidArgument);
  EXPECT_THROW(set_allocator(Allocator::caching), InvalidArgument);
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
  EXPECT_EQ(names.size(), 6U);
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

TEST_F(MemoryTest, ThePeakSaysWhichScopesHadIt) {
  const CategoryScope activations(Category::activations);
  std::vector<at::Tensor> kept;
  {
    const Scope block("blocks.0");
    kept.push_back(at::empty({1000}, at::kByte));
    {
      const Scope attention("attention");
      kept.push_back(at::empty({200}, at::kByte));
      kept.push_back(at::empty({300}, at::kByte));
    }
    kept.push_back(at::empty({10}, at::kByte));
  }
  const Peak before = peak();
  kept.clear();
  const Scope later("blocks.1");
  const at::Tensor small = at::empty({700}, at::kByte);
  const auto of_scope = [](const Peak& peak, const std::string& scope) {
    int64_t bytes = 0;
    for (const Holder& holder : peak.holders) {
      bytes += holder.scope == scope ? holder.bytes : 0;
    }
    return bytes;
  };
  EXPECT_EQ(of_scope(before, "blocks.0"), 1010);
  EXPECT_EQ(of_scope(before, "blocks.0.attention"), 500);
  EXPECT_EQ(peak().holders, before.holders);
  reset_peak();
  EXPECT_EQ(of_scope(peak(), "blocks.0.attention"), 0);
  EXPECT_EQ(of_scope(peak(), "blocks.1"), 700);
}

TEST_F(MemoryTest, AGradientBelongsToTheModuleOfItsParameter) {
  const at::Tensor weight = at::ones({10}).requires_grad_();
  const at::Tensor scale = at::ones({4}).requires_grad_();
  tag_gradients({{"tag.mlp.weight", weight}, {"scale", scale}});
  weight.mul(2).sum().add(scale.mul(scale).sum()).backward();
  reset_peak();
  std::map<std::string, int64_t> gradients;
  for (const Holder& holder : peak().holders) {
    if (holder.category == Category::gradients) {
      gradients[holder.scope] += holder.bytes;
    }
  }
  EXPECT_EQ(gradients, (std::map<std::string, int64_t>{{"", 16}, {"tag.mlp", 40}}));
}

TEST(Allocator, NamesReadBack) {
  EXPECT_EQ(parse_allocator("caching"), Allocator::caching);
  EXPECT_EQ(parse_allocator(name_of(Allocator::system)), Allocator::system);
  EXPECT_THAT(
      [] { (void)parse_allocator("mine"); },
      ThrowsMessage<InvalidArgument>("memory: unknown allocator \"mine\"; valid: caching system"));
}

constexpr int64_t kLarge = 100'000;  // bytes, of a tensor that the arena serves

class CachingTest : public MemoryTest {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    set_allocator(Allocator::caching);
    arena_start_ = caching_statistics();
  }
  void TearDown() override { set_allocator(Allocator::system); }

  int64_t blocks() const { return caching_statistics().live_blocks - arena_start_.live_blocks; }

  ArenaStatistics arena_start_;
};

TEST_F(CachingTest, LargeTensorsComeFromTheArenaAndAreCountedToTheLastByte) {
  at::Tensor tensor = at::empty({kLarge}, at::kByte);
  EXPECT_EQ(blocks(), 1);
  EXPECT_EQ(live_total(), kLarge);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0U);
  const void* const place = tensor.data_ptr();
  tensor.reset();
  EXPECT_EQ(blocks(), 0);
  EXPECT_EQ(live_total(), 0);
  EXPECT_EQ(at::empty({kLarge}, at::kByte).data_ptr(), place);
}

TEST_F(CachingTest, SmallTensorsDoNot) {
  const at::Tensor tensor = at::empty({1000}, at::kByte);
  EXPECT_EQ(blocks(), 0);
  EXPECT_EQ(live_total(), 1000);
}

TEST_F(CachingTest, TensorsOutliveTheChoiceOfTheAllocator) {
  at::Tensor cached = at::ones({kLarge}, at::kByte);
  set_allocator(Allocator::system);
  EXPECT_EQ(current_allocator(), Allocator::system);
  at::Tensor plain = at::ones({kLarge}, at::kByte);
  EXPECT_EQ(blocks(), 1);
  set_allocator(Allocator::caching);
  EXPECT_EQ(live_total(), 2 * kLarge);
  EXPECT_EQ(cached.add(plain).sum().item<int64_t>(), 2 * kLarge);
  plain.reset();
  cached.reset();
  EXPECT_EQ(blocks(), 0);
  EXPECT_EQ(live_total(), 0);
}

TEST_F(CachingTest, ReleaseGivesFreeMemoryBack) {
  { const at::Tensor tensor = at::ones({64 << 20}, at::kByte); }
  EXPECT_GE(release_cached(), 62 << 20);
  EXPECT_EQ(release_cached(), 0);
}

TEST_F(CachingTest, RetagsResizesAndRawAllocationsWorkThere) {
  at::Tensor tensor = at::empty({kLarge}, at::kByte);
  retag(tensor, Category::gradients);
  EXPECT_EQ(live(Category::gradients), kLarge);
  tensor.resize_({2 * kLarge});
  EXPECT_EQ(live_total(), 2 * kLarge);
  tensor.reset();
  void* bytes = c10::GetCPUAllocator()->raw_allocate(kLarge);
  EXPECT_EQ(blocks(), 1);
  c10::GetCPUAllocator()->raw_deallocate(bytes);
  EXPECT_EQ(blocks(), 0);
  EXPECT_EQ(live_total(), 0);
}

// Before it refuses, what is kept for later tensors is counted as free: it is given back.
TEST_F(CachingTest, ARefusalGivesFreeMemoryBackFirst) {
  const std::optional<ProcessMemory> memory = process_memory();
  if (!memory) {
    GTEST_SKIP() << "this system does not tell how much memory it has";
  }
  { const at::Tensor tensor = at::ones({64 << 20}, at::kByte); }
  EXPECT_THROW((void)at::empty({memory->available_bytes + (int64_t{1} << 30)}, at::kByte), Error);
  EXPECT_EQ(release_cached(), 0);
}

TEST_F(CachingTest, TensorsOfManyThreadsDoNotOverlapAndAreFreedByOthers) {
  constexpr size_t kThreads = 4;
  std::vector<std::vector<at::Tensor>> kept(kThreads);
  std::atomic<int> overwritten = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([t, &kept, &overwritten] {
      Random random(t, 0);
      const auto value = static_cast<uint8_t>(t + 1);
      for (int i = 0; i < 300; ++i) {
        const auto size = static_cast<int64_t>(1 + random.below(200'000));
        at::Tensor tensor = at::empty({size}, at::kByte);
        std::memset(tensor.data_ptr(), value, static_cast<size_t>(size));
        kept[t].push_back(tensor);
        if (kept[t].size() > 20) {
          std::swap(kept[t][random.below(20)], kept[t].back());
          const at::Tensor freed = kept[t].back();
          const auto* bytes = freed.const_data_ptr<uint8_t>();
          overwritten += std::count(bytes, bytes + freed.numel(), value) == freed.numel() ? 0 : 1;
          kept[t].pop_back();
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(overwritten, 0);
  EXPECT_GT(blocks(), 0);
  std::thread([&] { kept.clear(); }).join();
  EXPECT_EQ(blocks(), 0);
  EXPECT_EQ(live_total(), 0);
}

// A child gets the locks as they are at the fork, of threads that it does not have.
TEST_F(CachingTest, AChildGoesOnWhileTheParentAllocates) {
  std::atomic<bool> is_done = false;
  std::thread other([&] {
    while (!is_done) {
      const at::Tensor tensor = at::empty({kLarge}, at::kByte);
    }
  });
  const at::Tensor inherited = at::ones({kLarge}, at::kByte);
  for (int i = 0; i < 30; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::alarm(60);  // a deadlock ends, by a signal
      at::Tensor own = at::empty({2 * kLarge}, at::kByte);
      std::memset(own.data_ptr(), 2, 2 * kLarge);
      const bool is_kept = inherited.const_data_ptr<uint8_t>()[kLarge - 1] == 1;
      own.reset();
      (void)release_cached();
      ::_exit(is_kept ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
  is_done = true;
  other.join();
  EXPECT_EQ(inherited.sum().item<int64_t>(), kLarge);
}

// These run in a process of their own.
class CachingDeathTest : public ::testing::Test {
 protected:
  CachingDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Freed after main(), by a static object that was there before the allocator.
void exit_with_tensors_in_static_objects() {
  static std::vector<at::Tensor> tensors;
  static const std::vector<at::Tensor>& same = tensors;
  install_counting_allocator();
  set_allocator(Allocator::caching);
  tensors = {at::ones({kLarge}, at::kByte), at::ones({10})};
  static at::Tensor later = at::ones({kLarge}, at::kByte);
  std::exit(same.size() == 2 && later.defined() ? 0 : 1);
}

TEST_F(CachingDeathTest, TensorsInStaticObjectsAreFreedAtExit) {
  EXPECT_EXIT(exit_with_tensors_in_static_objects(), ::testing::ExitedWithCode(0), "");
}

// With addresses for half a gibibyte more: the arena takes a quarter, the system gives some more.
void exhaust_addresses() {
  int64_t used_pages = 0;
  std::ifstream("/proc/self/statm") >> used_pages;
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = static_cast<rlim_t>(used_pages * ::sysconf(_SC_PAGESIZE)) + (rlim_t{512} << 20);
  ::setrlimit(RLIMIT_AS, &limit);
  install_counting_allocator();
  set_allocator(Allocator::caching);
  std::vector<at::Tensor> tensors;
  tensors.reserve(100);
  try {
    while (tensors.size() < 100) {
      tensors.push_back(at::empty({10 << 20}, at::kByte));
    }
  } catch (const Error& error) {
    const ArenaStatistics arena = caching_statistics();
    std::cerr << "reserved " << (arena.reserved_bytes >> 20) << " MiB, from the arena "
              << arena.live_blocks << ", more "
              << (static_cast<int64_t>(tensors.size()) > arena.live_blocks) << ", counted "
              << (live_bytes().total() == static_cast<int64_t>(tensors.size()) * (10 << 20)) << ": "
              << error.what() << "|\n";
  }
  tensors.clear();
  std::cerr << "left " << caching_statistics().live_blocks << "\n";
  std::exit(0);
}

TEST_F(CachingDeathTest, BeyondTheArenaTheSystemServesAndThenARefusalIsOneLine) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer needs more addresses than a limit leaves";
#endif
  const std::optional<ProcessMemory> memory = process_memory();
  if (memory && memory->usable_bytes() < int64_t{1} << 30) {
    GTEST_SKIP() << "this machine has too little memory left";
  }
  EXPECT_EXIT(exhaust_addresses(), ::testing::ExitedWithCode(0),
              "reserved 12[68] MiB, from the arena 12, more 1, counted 1: memory: the system "
              "refused 10485760 bytes, with [0-9]+ bytes in tensors; use a smaller train.batch, "
              "train.microbatch, model or context\\|\nleft 0");
}

}  // namespace
}  // namespace mantissa::tensor::memory
