#include "mantissa/tensor/shapes_only.h"

#include <functional>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/process_memory.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::tensor {
namespace {

using numerics::Format;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class ShapesOnlyTest : public testing::Test {
 protected:
  ShapesOnlyTest() {
    memory::install_counting_allocator();
    at::set_num_threads(1);
  }
  ~ShapesOnlyTest() override { at::set_num_threads(threads_); }

  struct Taken {
    int64_t peak = 0;
    int64_t kept = 0;  // by the result of the work
  };

  static Taken measure(const std::function<at::Tensor()>& work) {
    const int64_t before = memory::live_bytes().total();
    memory::reset_peak();
    const at::Tensor result = work();
    return {memory::peak_bytes().total() - before, memory::live_bytes().total() - before};
  }

  static void expect_alike(const char* what, const std::function<at::Tensor()>& work) {
    (void)measure(work);  // what operations make at their first call
    const Taken computed = measure(work);
    const ShapesOnly shapes_only;
    const Taken skipped = measure(work);
    EXPECT_EQ(skipped.peak, computed.peak) << what;
    EXPECT_EQ(skipped.kept, computed.kept) << what;
    EXPECT_GT(computed.peak, 0) << what;
  }

 private:
  // More of them share scratch and sums in ways that differ between processors.
  const int threads_ = at::get_num_threads();
};

at::Tensor parameter(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  return at::ones(shape, dtype).requires_grad_();
}

TEST_F(ShapesOnlyTest, OperationsAllocateWhatTheyDoWhenTheyCompute) {
  expect_alike("sum of two formats", [] {
    return at::ones({64, 300}).add(at::ones({64, 300}, at::kBFloat16));
  });
  expect_alike("in place, of two formats", [] {
    return at::ones({64, 300}).add_(at::ones({64, 300}, at::kBFloat16));
  });
  expect_alike("logsumexp", [] { return at::logsumexp(at::ones({64, 300}), {1}, true); });
  expect_alike("casts and copies", [] {
    return at::ones({16, 100}).to(at::kHalf).t().contiguous().to(at::kFloat);
  });
  expect_alike("views, cat", [] {
    const at::Tensor x = at::ones({16, 100});
    return at::cat({x.narrow(1, 0, 30), x.narrow(1, 30, 70)}, 1).transpose(0, 1).reshape({-1});
  });
  expect_alike("softmax", [] { return at::ones({64, 300}).softmax(-1).log_softmax(0); });
}

TEST_F(ShapesOnlyTest, BackwardAllocatesWhatItDoesWhenItComputes) {
  expect_alike("linear", [] {
    const at::Tensor weight = parameter({128, 96});
    const at::Tensor loss = at::linear(at::ones({64, 96}), weight).square().mean();
    loss.backward();
    return weight.grad();
  });
  // Not by products, for which LibTorch's kernels of some processors take scratch of their own.
  expect_alike("of 16 bits, twice", [] {
    const at::Tensor weight = parameter({64, 96}, at::kBFloat16);
    const at::Tensor x = at::ones({64, 96}, at::kBFloat16);
    for (int i = 0; i < 2; ++i) {
      x.mul(weight).sigmoid().mul(weight).sum().backward();
    }
    return weight.grad();
  });
}

TEST_F(ShapesOnlyTest, AttentionOfLibTorchAllocatesWhatItDoesWhenItComputes) {
  for (const int64_t length : {20, 200, 800}) {
    expect_alike("attention", [length] {
      const at::Tensor q = parameter({2, 3, length, 16});
      const at::Tensor k = parameter({2, 3, length, 16});
      const at::Tensor v = parameter({2, 3, length, 16});
      at::scaled_dot_product_attention(q, k, v, {}, 0, /*is_causal=*/true).sum().backward();
      return q.grad();
    });
  }
}

// Channels that fill the blocks of every processor; LibTorch's own kernel keeps a few numbers more.
// Its kernels of some processors read an input as it lies, which is a copy of it less.
TEST_F(ShapesOnlyTest, ConvolutionsOfLibTorchAllocateWhatTheyDoWhenTheyCompute) {
  const auto expect_near = [](const char* what, const std::function<at::Tensor()>& work,
                              double spared = 0) {
    (void)measure(work);  // what operations make at their first call
    const Taken computed = measure(work);
    const ShapesOnly shapes_only;
    const Taken skipped = measure(work);
    const auto actual = static_cast<double>(computed.peak);
    EXPECT_GT(static_cast<double>(skipped.peak), 0.98 * actual) << what;
    EXPECT_LT(static_cast<double>(skipped.peak), 1.02 * actual + spared)
        << what << ": " << skipped.peak << " of " << computed.peak;
    EXPECT_EQ(skipped.kept, computed.kept) << what;
  };
  for (const bool is_transposed : {false, true}) {
    expect_near(
        is_transposed ? "depthwise, transposed" : "depthwise",
        [is_transposed] {
          const at::Tensor weight = parameter({48, 1, 3});
          const at::Tensor bias = parameter({48});
          const at::Tensor x = is_transposed ? parameter({2, 500, 48}) : parameter({2, 48, 500});
          const at::Tensor rows = is_transposed ? x.transpose(1, 2) : x;
          at::conv1d(rows, weight, bias, 1, 2, 1, 48).narrow(2, 0, 500).sum().backward();
          return x.grad();
        },
        2.0 * 48 * 500 * sizeof(float));
  }
  expect_near("strided", [] {
    const at::Tensor weight = parameter({32, 16, 5});
    const at::Tensor x = parameter({2, 16, 500});
    at::conv1d(x, weight, {}, 2, 3).sum().backward();
    return x.grad();
  });
  expect_near("flip", [] {
    const at::Tensor x = parameter({2, 16, 500});
    at::flip(x.transpose(1, 2), {1}).sum().backward();
    return x.grad();
  });
  expect_near("index_select", [] {
    const at::Tensor x = parameter({200, 50});
    return at::index_select(x, 0, at::arange(100)).detach();
  });
}

TEST_F(ShapesOnlyTest, NothingIsComputedButIntegersAndSingleNumbers) {
  const ShapesOnly shapes_only;
  EXPECT_EQ(at::ones({100, 100}).add(1)[3][4].item<float>(), 0);
  EXPECT_EQ(at::full({}, 2.0).mul(3).item<double>(), 6);
  EXPECT_EQ(at::arange(10'000).ge(9'990).sum().item<int64_t>(), 10);
}

// 4 TiB, and 16 KiB where the system lends large tensors none.
TEST_F(ShapesOnlyTest, TensorsOfAnySizeTakeNextToNoMemory) {
  const auto before = process_memory();
  const ShapesOnly shapes_only;
  const at::Tensor weight = parameter({1 << 20, 1 << 20});
  at::mm(weight, at::ones({1 << 20, 1})).sum().backward();
  EXPECT_EQ(weight.grad().sizes(), weight.sizes());
  EXPECT_GE(memory::live_bytes().total(), int64_t{2} * 4 << 40);
  if (before) {
    EXPECT_LT(process_memory()->resident_bytes - before->resident_bytes, 64 << 20);
  }
}

TEST_F(ShapesOnlyTest, CountsTheOperationsOfProductsByFormat) {
  const ShapesOnly shapes_only;
  const at::Tensor a = at::ones({30, 50});
  (void)at::mm(a, at::ones({50, 70}));
  (void)at::bmm(at::ones({2, 3, 50}, at::kBFloat16), at::ones({2, 50, 7}, at::kBFloat16));
  EXPECT_EQ(shapes_only.flops().at(Format::fp32), 2 * 30 * 50 * 70);
  EXPECT_EQ(shapes_only.flops().at(Format::bf16), 2 * 2 * 3 * 50 * 7);
}

TEST_F(ShapesOnlyTest, ComputesAgainAfterwards) {
  int ended = 0;
  {
    const ShapesOnly shapes_only;
    EXPECT_TRUE(is_shapes_only());
    at_end_of_shapes_only([&] { ++ended; });
    EXPECT_EQ(memory::current_allocator(), memory::Allocator::addresses);
  }
  EXPECT_EQ(ended, 1);
  EXPECT_FALSE(is_shapes_only());
  EXPECT_NE(memory::current_allocator(), memory::Allocator::addresses);
  EXPECT_EQ(at::ones({100, 100}).add(1)[3][4].item<float>(), 2);
}

TEST_F(ShapesOnlyTest, RefusesWhatOnlyAKernelKnows) {
  const ShapesOnly shapes_only;
  const at::Tensor x = at::ones({100, 100});
  EXPECT_THAT([&] { (void)at::masked_select(x, x.gt(0)); },
              ThrowsMessage<Unsupported>(HasSubstr(
                  "shapes only: the shapes of what aten::masked_select gives are known")));
}

TEST_F(ShapesOnlyTest, RefusesASecondOne) {
  const ShapesOnly shapes_only;
  EXPECT_THAT([] { const ShapesOnly second; },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("shapes only: a second one on this thread; end the first")));
}

TEST_F(ShapesOnlyTest, AJournalHasEveryChangeInOrder) {
  const memory::Journal journal;
  {
    const memory::CategoryScope weights(memory::Category::weights);
    const at::Tensor weight = at::empty({100}, at::kByte);
    memory::retag(weight, memory::Category::optimizer);
  }
  const std::vector<memory::Change> changes = journal.changes();
  ASSERT_EQ(changes.size(), 4);
  EXPECT_EQ(changes[0].category, memory::Category::weights);
  EXPECT_EQ(changes[0].bytes, 100);
  EXPECT_EQ(changes[1].bytes, -100);
  EXPECT_EQ(changes[3].category, memory::Category::optimizer);
  EXPECT_EQ(changes[3].bytes, -100);
}

TEST_F(ShapesOnlyTest, RefusesASecondJournal) {
  const memory::Journal journal;
  EXPECT_THAT([] { const memory::Journal second; },
              ThrowsMessage<InvalidArgument>(HasSubstr("memory: a second journal; end the first")));
}

}  // namespace
}  // namespace mantissa::tensor
