#include <array>
#include <numeric>

#include <ATen/Parallel.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <gtest/gtest.h>

#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/rounding_bound.h"

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

TEST_P(Convolution, ForwardIsTheFp32ResultRoundedOnce) {
  for (const Case& c : kCases) {
    const Tensor x = random(c.input, dtype());
    const Tensor w = random(c.weight, dtype());
    const Tensor fp32 = forward(c, x.to(at::kFloat), w.to(at::kFloat), {});
    EXPECT_TRUE(at::equal(forward(c, x, w, {}), fp32.to(dtype()))) << c.name;
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

TEST_P(Convolution, StridedInputsAndChannelsLastGiveTheSameNumbers) {
  const Case& c = kCases[4];
  const Tensor x = random(c.input, dtype());
  const Tensor w = random(c.weight, dtype());
  const Tensor exact = forward(c, wide(x), wide(w), {});
  const Tensor bound = sum_bound(exact, forward(c, size(x), size(w), {}), 37, dtype());
  expect_within(forward(c, x.contiguous(at::MemoryFormat::ChannelsLast), w, {}), exact, bound);
  expect_within(forward(c, x.transpose(2, 3).contiguous().transpose(2, 3), w, {}), exact, bound);
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

// The order of LibTorch's FP32 sums may depend on the number of threads; ours is always that.
TEST_P(Convolution, IsTheFp32OneRoundedForAnyNumberOfThreads) {
  const Case c = {"large", {4, 32, 600}, {48, 32, 5}, {1}, {2}, {1}, false, {0}, 1};
  const Tensor x = random(c.input, dtype());
  const Tensor w = random(c.weight, dtype());
  const int before = at::get_num_threads();
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    const Tensor y = forward(c, x, w, {});
    const auto actual = backward(c, y, x, w, {true, true, true});
    const Tensor x32 = x.to(at::kFloat);
    const Tensor w32 = w.to(at::kFloat);
    EXPECT_TRUE(at::equal(y, forward(c, x32, w32, {}).to(dtype()))) << threads;
    const auto expected = backward(c, y.to(at::kFloat), x32, w32, {true, true, true});
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(actual[i], expected[i].to(dtype()))) << threads << " " << i;
    }
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace mantissa::ops
