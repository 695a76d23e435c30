#include <array>
#include <cstdlib>
#include <functional>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/kernel_switch_testing.h"
#include "mantissa/ops/rounding_bound.h"
#include "mantissa/ops/tf32.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::ops {
namespace {

using at::Tensor;

struct Case {
  std::string name;
  std::vector<int64_t> input;
  std::vector<int64_t> weight;
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> dilation;
  bool transposed = false;
  std::vector<int64_t> output_padding;
  int64_t groups = 1;
};

const std::vector<Case> kCases = {
    {"conv1d", {3, 8, 50}, {12, 8, 5}, {1}, {2}, {1}, false, {0}, 1},
    {"pointwise", {2, 16, 33}, {24, 16, 1}, {1}, {0}, {1}, false, {0}, 1},
    {"strided and dilated", {2, 6, 41}, {4, 6, 3}, {2}, {3}, {4}, false, {0}, 1},
    {"depthwise", {2, 10, 30}, {10, 1, 3}, {1}, {1}, {1}, false, {0}, 10},
    {"grouped 2d", {2, 8, 9, 11}, {6, 4, 3, 3}, {1, 2}, {1, 0}, {1, 1}, false, {0, 0}, 2},
    {"transposed 1d", {2, 6, 17}, {6, 4, 3}, {2}, {1}, {1}, true, {1}, 1},
    {"transposed grouped 2d", {2, 4, 5, 6}, {4, 3, 2, 3}, {2, 1}, {0, 1}, {1, 2}, true, {0, 0}, 2},
    {"conv3d",
     {1, 3, 5, 6, 4},
     {5, 3, 2, 3, 2},
     {1, 1, 1},
     {0, 1, 0},
     {1, 1, 1},
     false,
     {0, 0, 0},
     1},
    {"transposed grouped 3d",
     {2, 4, 3, 4, 5},
     {4, 8, 2, 3, 2},
     {2, 1, 3},
     {1, 0, 1},
     {1, 2, 1},
     true,
     {1, 0, 2},
     2},
    {"depthwise with a multiplier", {2, 6, 700}, {18, 1, 7}, {1}, {3}, {1}, false, {0}, 6},
    {"depthwise 2d", {2, 9, 20, 13}, {9, 1, 3, 5}, {2, 1}, {1, 2}, {1, 1}, false, {0, 0}, 9},
    {"depthwise 3d",
     {1, 4, 6, 5, 7},
     {4, 1, 3, 3, 3},
     {1, 2, 1},
     {1, 1, 1},
     {1, 1, 2},
     false,
     {0, 0, 0},
     4},
    {"depthwise transposed", {2, 5, 31}, {5, 1, 4}, {2}, {1}, {1}, true, {0}, 5},
    {"pointwise strided", {2, 9, 11, 12}, {10, 9, 1, 1}, {2, 3}, {0, 0}, {1, 1}, false, {0, 0}, 1},
    {"pointwise 2d", {3, 12, 6, 7}, {9, 12, 1, 1}, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1},
    {"deep", {1, 40, 70}, {10, 40, 31}, {1}, {15}, {1}, false, {0}, 1},
    {"far apart", {2, 8, 900}, {9, 8, 3}, {1}, {200}, {200}, false, {0}, 1},
    {"to one channel", {2, 40, 30}, {1, 40, 3}, {1}, {0}, {1}, false, {0}, 1},
    {"stride larger than the kernel", {2, 8, 30}, {8, 8, 2}, {5}, {1}, {1}, false, {0}, 1},
};

class Convolution : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    install_cpu_kernels();
    at::manual_seed(11);
  }
  at::ScalarType dtype() const { return GetParam(); }

  CpuKernelsGuard ours_{CpuKernels::ours};
};

INSTANTIATE_TEST_SUITE_P(Formats, Convolution, testing::Values(at::kBFloat16, at::kHalf),
                         testing::PrintToStringParamName());

Tensor forward(const Case& c, const Tensor& input, const Tensor& weight,
               const std::optional<Tensor>& bias) {
  return at::convolution(input, weight, bias, c.stride, c.padding, c.dilation, c.transposed,
                         c.output_padding, c.groups);
}

std::array<Tensor, 3> backward(const Case& c, const Tensor& grad, const Tensor& input,
                               const Tensor& weight, std::array<bool, 3> mask) {
  const int64_t channels = c.transposed ? c.weight[1] * c.groups : c.weight[0];
  const auto [grad_input, grad_weight, grad_bias] =
      at::convolution_backward(grad, input, weight, at::IntArrayRef(channels), c.stride, c.padding,
                               c.dilation, c.transposed, c.output_padding, c.groups, mask);
  return {grad_input, grad_weight, grad_bias};
}

Tensor wide(const Tensor& tensor) { return tensor.to(at::kDouble); }
Tensor size(const Tensor& tensor) { return tensor.to(at::kDouble).abs(); }

// No sum of a pass has more terms than all the numbers of the tensor that it reads, and one.
TEST_P(Convolution, ForwardAndBackwardAreWithinTheBoundOfFp32SumsAndOneRounding) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Tensor x = random(c.input, dtype());
    const Tensor w = random(c.weight, dtype());
    const Tensor b = random({c.transposed ? c.weight[1] * c.groups : c.weight[0]}, dtype());
    const Tensor y = forward(c, x, w, b);
    EXPECT_EQ(y.scalar_type(), dtype());
    const int64_t forward_terms = w.numel() / (c.transposed ? 1 : w.size(0)) + 1;
    expect_within(
        y, forward(c, wide(x), wide(w), wide(b)),
        sum_bound(forward(c, wide(x), wide(w), wide(b)), forward(c, size(x), size(w), size(b)),
                  static_cast<double>(forward_terms), dtype()));

    const Tensor grad = random(y.sizes(), dtype());
    const auto actual = backward(c, grad, x, w, {true, true, true});
    const auto exact = backward(c, wide(grad), wide(x), wide(w), {true, true, true});
    const auto magnitude = backward(c, size(grad), size(x), size(w), {true, true, true});
    const std::array<double, 3> terms = {static_cast<double>(w.numel()),
                                         static_cast<double>(grad.numel()),
                                         static_cast<double>(grad.numel())};
    for (size_t i = 0; i < 3; ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(actual[i].scalar_type(), dtype());
      expect_within(actual[i], exact[i], sum_bound(exact[i], magnitude[i], terms[i], dtype()));
    }
  }
}

TEST_P(Convolution, TheMaskOfOutputsIsHonoured) {
  const Case& c = kCases[4];
  const Tensor x = random(c.input, dtype());
  const Tensor w = random(c.weight, dtype());
  const Tensor grad = random(forward(c, x, w, {}).sizes(), dtype());
  const auto all = backward(c, grad, x, w, {true, true, true});
  for (int bits = 0; bits < 8; ++bits) {
    const std::array<bool, 3> mask = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
    const auto some = backward(c, grad, x, w, mask);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(some[i].defined(), mask[i]) << bits << " " << i;
      EXPECT_TRUE(!mask[i] || at::equal(some[i], all[i])) << bits << " " << i;
    }
  }
}

// As the numbers alone decide, so do they where they lie otherwise in memory.
TEST_P(Convolution, LayoutsDoNotChangeABit) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Tensor x = random(c.input, dtype());
    const Tensor w = random(c.weight, dtype());
    const Tensor y = forward(c, x, w, {});
    const Tensor grad = random(y.sizes(), dtype());
    const auto expected = backward(c, grad, x, w, {true, true, true});
    const auto misaligned = [](const Tensor& tensor) {
      return at::constant_pad_nd(tensor, {1, 2}).narrow(-1, 1, tensor.size(-1));
    };
    const auto channels_last = [](const Tensor& tensor) {
      return tensor.transpose(1, -1).contiguous().transpose(1, -1);
    };
    const auto spread = [](const Tensor& tensor) {  // no stride is 1
      return tensor.unsqueeze(-1).repeat_interleave(2, -1).select(-1, 1);
    };
    const auto repeated = [](const Tensor& tensor) { return tensor.clone(); };
    const std::vector<std::function<Tensor(const Tensor&)>> layouts = {misaligned, channels_last,
                                                                       spread, repeated};
    for (size_t i = 0; i < layouts.size(); ++i) {
      SCOPED_TRACE(i);
      const auto& as = layouts[i];
      EXPECT_TRUE(at::equal(forward(c, as(x), as(w), {}), y));
      const auto actual = backward(c, as(grad), as(x), as(w), {true, true, true});
      for (size_t j = 0; j < expected.size(); ++j) {
        EXPECT_TRUE(at::equal(actual[j], expected[j])) << j;
      }
    }
  }
}

TEST_P(Convolution, ChannelsLastStaysSo) {
  const Case& c = kCases[4];
  const Tensor x = random(c.input, dtype()).contiguous(at::MemoryFormat::ChannelsLast);
  const Tensor w = random(c.weight, dtype());
  const Tensor y = forward(c, x, w, {});
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  const auto gradients = backward(c, y, x, w, {true, true, true});
  EXPECT_TRUE(gradients[0].is_contiguous(at::MemoryFormat::ChannelsLast));
}

// Of a result, those numbers are NaN or infinite that meet one which is; here without padding,
// whose zeros are factors too.
TEST_P(Convolution, NanAndInfinityReachWhatMeetsThemOnly) {
  for (const int64_t groups : {1, 8}) {  // by panels and by lines
    const Case c = {"", {2, 8, 50}, {8, 8 / groups, 5}, {1}, {0}, {1}, false, {0}, groups};
    for (const double special :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      const Tensor x = random(c.input, dtype());
      const Tensor w = random(c.weight, dtype());
      const Tensor grad = random({2, 8, 46}, dtype());
      x.select(0, 1).select(0, 3).select(0, 20).fill_(special);
      const Tensor y = forward(c, x, w, {});
      EXPECT_TRUE(at::equal(y.isfinite(), forward(c, wide(x), wide(w), {}).isfinite()));
      EXPECT_EQ(y.isfinite().logical_not().sum().item<int64_t>(), groups == 1 ? 8 * 5 : 5);
      const Tensor gw = backward(c, grad, x, w, {true, true, true})[1];
      const Tensor expected = backward(c, wide(grad), wide(x), wide(w), {true, true, true})[1];
      EXPECT_TRUE(at::equal(gw.isfinite(), expected.isfinite()));
    }
  }
}

TEST_P(Convolution, EmptyBatchesAndErrorsAreLibTorchsOwn) {
  const Tensor w = random({4, 3, 5}, dtype());
  EXPECT_EQ(at::conv1d(random({0, 3, 9}, dtype()), w).sizes(), at::IntArrayRef({0, 4, 5}));
  const std::vector<std::function<void()>> calls = {
      [&] {
        (void)at::conv1d(random({1, 2, 9}, dtype()), w);
      },
      [&] {
        (void)at::conv1d(random({1, 3, 4}, dtype()), w);
      },
      [&] {
        (void)at::conv1d(random({1, 3, 9}, at::kFloat), w);
      },
      [&] {
        (void)at::conv1d(random({1, 3, 9}, dtype()), w, random({4}, at::kFloat));
      },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    const CpuKernelsGuard ours(CpuKernels::ours);
    const std::string message = failure_of(calls[i]);
    EXPECT_NE(message, "");
    const CpuKernelsGuard stock(CpuKernels::stock);
    EXPECT_EQ(message, failure_of(calls[i]));
  }
}

TEST(ConvolutionDtypes, DepthwiseOnesAreOursOnEveryCpu) {
  install_cpu_kernels();
  at::manual_seed(14);
  const Case c = {"", {2, 8, 40}, {8, 1, 3}, {1}, {1}, {1}, false, {0}, 8};
  for (at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const Tensor x = random(c.input, dtype);
    const Tensor w = random(c.weight, dtype);
    const CpuKernelsGuard automatic(CpuKernels::automatic);
    const Tensor chosen = forward(c, x, w, {});
    const CpuKernelsGuard ours(CpuKernels::ours);
    EXPECT_TRUE(at::equal(chosen, forward(c, x, w, {}))) << dtype;
  }
}

TEST(ConvolutionDtypes, Fp32IsBitForBitLibTorchs) {
  install_cpu_kernels();
  at::manual_seed(12);
  for (const Case& c : kCases) {
    const Tensor x = random(c.input, at::kFloat);
    const Tensor w = random(c.weight, at::kFloat);
    const auto all = [&] {
      const Tensor y = forward(c, x, w, {});
      const auto [gx, gw, gb] = backward(c, at::ones_like(y), x, w, {true, true, true});
      return std::vector<Tensor>{y, gx, gw, gb};
    };
    const CpuKernelsGuard ours(CpuKernels::ours);
    const auto with = all();
    const CpuKernelsGuard stock(CpuKernels::stock);
    const auto without = all();
    for (size_t i = 0; i < with.size(); ++i) {
      EXPECT_TRUE(at::equal(with[i], without[i])) << c.name << " " << i;
    }
  }
}

TEST_P(Convolution, DoesNotDependOnTheNumberOfThreads) {
  std::vector<Case> cases = kCases;
  cases.push_back({"large", {4, 32, 600}, {48, 32, 5}, {1}, {2}, {1}, false, {0}, 1});
  cases.push_back({"large, depthwise", {3, 70, 5000}, {70, 1, 5}, {1}, {2}, {1}, false, {0}, 70});
  const int before = at::get_num_threads();
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Tensor x = random(c.input, dtype());
    const Tensor w = random(c.weight, dtype());
    const auto all = [&](int threads) {
      at::set_num_threads(threads);
      const Tensor y = forward(c, x, w, {});
      const auto [gx, gw, gb] = backward(c, y, x, w, {true, true, true});
      return std::vector<Tensor>{y, gx, gw, gb};
    };
    const auto one = all(1);
    for (const int threads : {1, 2, 3}) {
      const auto others = all(threads);
      for (size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(at::equal(others[i], one[i])) << threads << " " << i;
      }
    }
  }
  at::set_num_threads(before);
}

// The results are all that is allocated as tensors, and 64 KiB; a widened input is 2 MiB.
TEST(ConvolutionMemoryDeathTest, NoTensorIsWidened) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto run = [] {
    namespace memory = tensor::memory;
    memory::install_counting_allocator();
    install_cpu_kernels();
    const CpuKernelsGuard ours(CpuKernels::ours);
    for (const int64_t groups : {1, 64}) {
      const Case c = {"", {2, 64, 4096}, {64, 64 / groups, 3}, {1}, {1}, {1}, false, {0}, groups};
      const Tensor x = random(c.input, at::kBFloat16);
      const Tensor w = random(c.weight, at::kBFloat16);
      memory::reset_peak();
      const int64_t before = memory::peak_bytes().total();
      const Tensor y = forward(c, x, w, {});
      const auto gradients = backward(c, y, x, w, {true, true, true});
      const auto results = static_cast<int64_t>(y.nbytes() + gradients[0].nbytes() +
                                                gradients[1].nbytes() + gradients[2].nbytes());
      if (memory::peak_bytes().total() - before > results + (1 << 16)) {
        std::exit(1);
      }
    }
    std::exit(0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), testing::Eq(""));
}

TEST(ConvolutionTf32, IsWithinTheBoundForRoundedFactors) {
  install_cpu_kernels();
  at::manual_seed(13);
  const Tf32Guard guard(Tf32::on);
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Tensor x = random(c.input, at::kFloat);
    const Tensor w = random(c.weight, at::kFloat);
    const Tensor y = forward(c, x, w, {});
    const Tensor grad = random(y.sizes(), at::kFloat);
    const auto actual = backward(c, grad, x, w, {true, true, true});
    const Tensor rx = round_to_tf32(x);
    const Tensor rw = round_to_tf32(w);
    const Tensor rounded = round_to_tf32(grad);
    const auto terms = static_cast<double>(w.numel());
    expect_within(y, forward(c, wide(rx), wide(rw), {}),
                  sum_bound(forward(c, wide(rx), wide(rw), {}), forward(c, size(rx), size(rw), {}),
                            terms, at::kFloat));
    auto exact = backward(c, wide(rounded), wide(rx), wide(rw), {true, true, false});
    auto magnitude = backward(c, size(rounded), size(rx), size(rw), {true, true, false});
    exact[2] = backward(c, wide(grad), wide(x), wide(w), {false, false, true})[2];
    magnitude[2] = backward(c, size(grad), size(x), size(w), {false, false, true})[2];
    for (size_t i = 0; i < 3; ++i) {
      SCOPED_TRACE(i);
      expect_within(actual[i], exact[i],
                    sum_bound(exact[i], magnitude[i],
                              i == 0 ? terms : static_cast<double>(grad.numel()), at::kFloat));
    }
  }
}

TEST(ConvolutionSwitch, EachCallIsWhollyOneOrTheOtherWhileItMoves) {
  install_cpu_kernels();
  const std::vector<int64_t> one = {1};
  const std::vector<int64_t> none = {0};
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    int told_apart = 0;
    for (const int64_t groups : {1, 2}) {
      SCOPED_TRACE(testing::Message() << dtype << " " << groups);
      told_apart += is_wholly_ours_or_stock([&](uint64_t seed) {
        at::manual_seed(seed);
        const Tensor x = random({2, 24, 200}, dtype);
        const Tensor w = random({24, 24 / groups, 15}, dtype);
        return
            [=] { return Tensors{at::convolution(x, w, {}, one, none, one, false, none, groups)}; };
      });
      told_apart += is_wholly_ours_or_stock([&](uint64_t seed) {
        at::manual_seed(seed);
        const Tensor x = random({2, 24, 200}, dtype);
        const Tensor w = random({24, 24 / groups, 15}, dtype);
        const Tensor grad = random({2, 24, 186}, dtype);
        return [=] {
          const auto [grad_x, grad_w, grad_bias] = at::convolution_backward(
              grad, x, w, std::nullopt, one, none, one, false, none, groups, {true, true, false});
          return Tensors{grad_x, grad_w};
        };
      });
    }
    EXPECT_GT(told_apart, 0) << dtype;
  }
}

}  // namespace
}  // namespace mantissa::ops
