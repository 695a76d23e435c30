#include "mantissa/ops/long_convolution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/fft_irfft.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/ops/cpu/right_angle_plan.h"
#include "mantissa/ops/rounding_bound.h"
#include "mantissa/ops/simd_target_testing.h"
#include "mantissa/tensor/memory.h"

// B rows of the batch, C channels, L numbers a row.
namespace mantissa::ops {
namespace {

using at::ScalarType;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

struct Inputs {
  Tensor x;
  Tensor filter;
  OptionalTensor bias;
  Tensor grad_out;
};

struct Results {
  Tensor out;
  Tensor grad_x;
  Tensor grad_filter;
  Tensor grad_bias;
};

Tensor leaf(const Tensor& tensor) { return tensor.detach().requires_grad_(); }

Results run(const Inputs& in) {
  std::vector<Tensor> leaves = {leaf(in.x), leaf(in.filter)};
  OptionalTensor bias;
  if (in.bias) {
    bias = leaf(*in.bias);
    leaves.push_back(*bias);
  }
  Results results;
  results.out = long_convolution(leaves[0], leaves[1], bias);
  const std::vector<Tensor> found = torch::autograd::grad({results.out}, leaves, {in.grad_out});
  results.grad_x = found[0];
  results.grad_filter = found[1];
  if (in.bias) {
    results.grad_bias = found[2];
  }
  return results;
}

Tensor wide(const Tensor& tensor) { return tensor.detach().to(at::kDouble).contiguous(); }

// The definition, number by number, in FP64.
Results direct(const Inputs& in) {
  const Tensor x_t = wide(in.x);
  const Tensor filter_t = wide(in.filter);
  const Tensor grad_t = wide(in.grad_out);
  const Tensor bias_t = in.bias ? wide(*in.bias) : at::zeros({x_t.size(1)}, at::kDouble);
  Results results = {at::zeros_like(x_t), at::zeros_like(x_t), at::zeros_like(filter_t),
                     at::zeros_like(bias_t)};
  const auto x = x_t.accessor<double, 3>();
  const auto filter = filter_t.accessor<double, 2>();
  const auto grad = grad_t.accessor<double, 3>();
  const auto bias = bias_t.accessor<double, 1>();
  auto out = results.out.accessor<double, 3>();
  auto grad_x = results.grad_x.accessor<double, 3>();
  auto grad_filter = results.grad_filter.accessor<double, 2>();
  auto grad_bias = results.grad_bias.accessor<double, 1>();
  for (int64_t b = 0; b < x.size(0); ++b) {
    for (int64_t c = 0; c < x.size(1); ++c) {
      for (int64_t t = 0; t < x.size(2); ++t) {
        out[b][c][t] += bias[c] * x[b][c][t];
        grad_x[b][c][t] += bias[c] * grad[b][c][t];
        grad_bias[c] += grad[b][c][t] * x[b][c][t];
        for (int64_t s = 0; s <= std::min(t, filter.size(1) - 1); ++s) {
          out[b][c][t] += filter[c][s] * x[b][c][t - s];
          grad_x[b][c][t - s] += filter[c][s] * grad[b][c][t];
          grad_filter[c][s] += grad[b][c][t] * x[b][c][t - s];
        }
      }
    }
  }
  return results;
}

// The definition by FFT in FP64, where the direct one takes too long.
Results by_fft(const Inputs& in) {
  const int64_t length = in.x.size(2);
  const auto spectrum = [&](const Tensor& rows) { return at::fft_rfft(rows, 2 * length); };
  const auto rows = [&](const Tensor& values) {
    return at::fft_irfft(values, 2 * length).narrow(-1, 0, length);
  };
  const Tensor x = spectrum(wide(in.x));
  const Tensor grad = spectrum(wide(in.grad_out));
  Tensor taps = wide(in.filter).clone();
  if (in.bias) {
    taps.select(1, 0).add_(wide(*in.bias));
  }
  const Tensor filter = spectrum(taps);
  const Tensor grad_filter = rows(grad.mul(x.conj()).sum(0));
  return {rows(x.mul(filter)), rows(grad.mul(filter.conj())), grad_filter,
          grad_filter.select(1, 0)};
}

// The error of a transform, relative to its exact result, both as Euclidean norms (Higham, 2002,
// section 24.1), in units of u = 2^-24. A step of radix 4 is an orthogonal matrix times 2, so that
// errors before it keep their size relative to the norm; of its own it has that of its factors,
// sqrt(5) of a complex product (Brent, Percival and Zimmermann, 2007) and 1 of each of two
// additions. Factors are rounded to 1; in the last two steps some are products: x^2 and x^8 with
// 2 + 2.24, x^3 and x^12 with 7.5, x^3 turned by a rounded root with 10.8. A sum of the first step
// has gamma(2 r + 1) of the magnitudes, whose sum is at most sqrt(r) of the norm.
double transform_error(const cpu::RightAnglePlan& plan) {
  const auto radix = static_cast<double>(plan.first_radix);
  const double first = gamma(2 * radix + 1) * std::sqrt(radix);
  const double own = 2.24 + 2;
  const double step = 1 + own;
  const double last_steps = 7.5 + own + 10.8 + own;
  return first + (static_cast<double>(plan.steps.size()) * step + last_steps) * kFp32Roundoff;
}

Tensor row_norm(const Tensor& rows) { return wide(rows).square().sum(-1, true).sqrt(); }

// Of the convolution's or correlation's 2 L numbers, of which L are the result.
Tensor product_norm(const Tensor& a, const Tensor& b) {
  const int64_t size = a.size(-1) + b.size(-1);
  return row_norm(
      at::fft_irfft(at::fft_rfft(wide(a), size).mul(at::fft_rfft(wide(b), size)), size));
}

// Of a sum over rows (dimension 0, unless there is one alone) of convolutions or correlations: the
// spectra of both factors with their errors, their product, the sum, and the inverse transform of
// that; a number's error is at most the norm of all.
Tensor error_bound(const Tensor& a, const Tensor& b, bool sums_rows) {
  const cpu::RightAnglePlan plan(a.size(-1));
  const double each = transform_error(plan);
  const double rows = sums_rows ? static_cast<double>(a.size(0)) : 1;
  Tensor magnitude = row_norm(a).mul(row_norm(b)).mul(2 * each + gamma(rows + 4));
  Tensor product = product_norm(a, b).mul(each);
  const Tensor bound = magnitude.add(product).mul(1.01);  // second order
  return sums_rows ? bound.sum(0) : bound;
}

Inputs cut(const Inputs& in) {
  const int64_t taps = std::min(in.filter.size(1), in.x.size(2));
  Inputs result = in;
  result.filter = wide(in.filter).narrow(1, 0, taps).clone();
  if (in.bias) {
    result.filter.select(1, 0).add_(wide(*in.bias));
  }
  return result;
}

// `error` in FP32. LibTorch's transforms in FP64 have no more steps, each with an error as above.
void expect_near(const Tensor& actual, const Tensor& exact, const Tensor& error) {
  const Tensor each = error.expand_as(exact);
  expect_within(actual, exact,
                actual.scalar_type() == at::kDouble
                    ? each.mul(0x1p-53 / kFp32Roundoff)
                    : after_rounding(each, exact, actual.scalar_type()));
}

void expect_near(const Results& actual, const Results& exact, const Inputs& in) {
  EXPECT_EQ(actual.out.scalar_type(), in.x.scalar_type());
  EXPECT_EQ(actual.grad_x.scalar_type(), in.x.scalar_type());
  EXPECT_EQ(actual.grad_filter.scalar_type(), in.filter.scalar_type());
  const Tensor taps = cut(in).filter;
  expect_near(actual.out, exact.out, error_bound(in.x, taps, false));
  expect_near(actual.grad_x, exact.grad_x, error_bound(in.grad_out, taps, false));
  const Tensor filter_error = error_bound(in.grad_out, in.x, true);
  expect_near(actual.grad_filter, exact.grad_filter, filter_error);
  if (in.bias) {
    EXPECT_EQ(actual.grad_bias.scalar_type(), in.bias->scalar_type());
    expect_near(actual.grad_bias, exact.grad_bias, filter_error.squeeze(-1));
  }
}

Inputs inputs(std::vector<int64_t> shape, int64_t taps, ScalarType dtype,
              ScalarType filter_dtype = at::kFloat) {
  return {random(shape, dtype), random({shape[1], taps}, filter_dtype),
          random({shape[1]}, at::kFloat), random(shape, dtype)};
}

class LongConvolution : public testing::TestWithParam<ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(31); }
};

INSTANTIATE_TEST_SUITE_P(Formats, LongConvolution,
                         testing::Values(at::kFloat, at::kBFloat16, at::kHalf, at::kDouble),
                         [](const auto& dtype) { return std::string(c10::toString(dtype.param)); });

// Sizes 256 r 4^n by each first radix, and one more or less.
TEST_P(LongConvolution, BothPassesAreTheDirectSumsWithinTheBoundOfFft) {
  for (const int64_t length : {1, 2, 15, 16, 17, 255, 256, 257, 512, 511, 700, 1000, 1279, 1537}) {
    SCOPED_TRACE(length);
    const Inputs in = inputs({2, 3, length}, length, GetParam());
    expect_near(run(in), direct(in), in);
  }
}

TEST_P(LongConvolution, FiltersOfAnyNumberOfTapsAndFormat) {
  for (const int64_t taps : {1, 2, 99, 299, 300, 301, 1000}) {
    for (const ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(testing::Message() << taps << " taps " << dtype);
      Inputs in = inputs({2, 3, 300}, taps, GetParam(), dtype);
      in.bias = random({3}, dtype);
      expect_near(run(in), direct(in), in);
      in.bias = std::nullopt;
      expect_near(run(in), direct(in), in);
    }
  }
}

// Every first radix, and columns of 64 to 1,024 rows.
TEST_P(LongConvolution, LongRowsWithinTheBoundOfFft) {
  for (const int64_t length :
       {1024, 1793, 2303, 2559, 3583, 4096, 5000, 9216, 10240, 12288, 14336, 16386, 65536}) {
    SCOPED_TRACE(length);
    const Inputs in = inputs({1, 2, length}, length, GetParam());
    expect_near(run(in), by_fft(in), in);
  }
}

TEST_P(LongConvolution, KernelsOfEveryInstructionSet) {
  for (const int64_t length : {300, 1025, 5000}) {
    const Inputs in = inputs({2, 2, length}, length, GetParam());
    const Results exact = by_fft(in);
    on_every_simd_target([&] { expect_near(run(in), exact, in); });
  }
}

TEST_P(LongConvolution, OfStridedTensorsIsThatOfContiguousOnes) {
  const Tensor wide_x = random({2, 9, 600}, GetParam());
  const Tensor columns = random({2, 600, 3}, GetParam());
  for (const Tensor& x :
       {wide_x.narrow(1, 3, 3), wide_x.narrow(1, 3, 3).slice(2, 0, 600, 2), columns.transpose(1, 2),
        random({3, 1}, GetParam()).expand({2, 3, 600})}) {
    Inputs in = inputs(x.sizes().vec(), 100, GetParam());
    in.x = x;
    in.grad_out = random({2, x.size(2), 3}, GetParam()).transpose(1, 2);
    in.filter = random({100, 3}, at::kFloat).t();
    Inputs contiguous = in;
    contiguous.x = x.contiguous();
    contiguous.grad_out = in.grad_out.contiguous();
    contiguous.filter = in.filter.contiguous();
    const Results actual = run(in);
    const Results expected = run(contiguous);
    EXPECT_TRUE(at::equal(actual.out, expected.out));
    EXPECT_TRUE(at::equal(actual.grad_x, expected.grad_x));
    EXPECT_TRUE(at::equal(actual.grad_filter, expected.grad_filter));
    EXPECT_TRUE(at::equal(actual.grad_bias, expected.grad_bias));
  }
}

TEST_P(LongConvolution, OfRowsWithoutABatchOrWithMoreDimensions) {
  const Inputs in = inputs({6, 3, 300}, 300, GetParam());
  const Results flat = run(in);
  Inputs more = in;
  more.x = in.x.view({2, 3, 3, 300});
  more.grad_out = in.grad_out.view({2, 3, 3, 300});
  const Results results = run(more);
  EXPECT_TRUE(at::equal(results.out.view_as(flat.out), flat.out));
  EXPECT_TRUE(at::equal(results.grad_x.view_as(flat.out), flat.grad_x));
  EXPECT_TRUE(at::equal(results.grad_filter, flat.grad_filter));
  EXPECT_TRUE(at::equal(long_convolution(in.x[0], in.filter, in.bias), flat.out[0]));
}

TEST_P(LongConvolution, OfNothingIsNothing) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{0, 3, 40}, {2, 0, 40}, {2, 3, 0}}) {
    const Inputs in = inputs(shape, 7, GetParam());
    const Results results = run(in);
    EXPECT_EQ(results.out.sizes(), in.x.sizes());
    EXPECT_EQ(results.grad_x.sizes(), in.x.sizes());
    EXPECT_TRUE(at::equal(results.grad_filter, at::zeros_like(in.filter)));
    EXPECT_TRUE(at::equal(results.grad_bias, at::zeros_like(*in.bias)));
  }
}

TEST_P(LongConvolution, SmallRowsBesideLargeOnesAreAsExactAsAlone) {
  const double large = GetParam() == at::kHalf ? 100 : 1e6;
  Inputs in = inputs({4, 2, 1000}, 1000, GetParam());
  for (const Tensor& tensor : {in.x, in.grad_out}) {
    tensor.select(0, 0).mul_(large);
    tensor.select(0, 1).div_(large);
    tensor.select(0, 3).div_(large);
  }
  const Results all = run(in);
  expect_near(all, direct(in), in);
  const Inputs one = {in.x.slice(0, 1, 2), in.filter, in.bias, in.grad_out.slice(0, 1, 2)};
  const Results alone = run(one);
  EXPECT_TRUE(at::equal(alone.out[0], all.out[1]));
  EXPECT_TRUE(at::equal(alone.grad_x[0], all.grad_x[1]));
}

TEST_P(LongConvolution, NanAndInfinityStayInTheirRowAndChannel) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const Inputs clean = inputs({3, 2, 500}, 500, GetParam());
    const Results expected = run(clean);
    Inputs in = clean;
    in.x = clean.x.clone();
    in.x[1][0][77].fill_(bad);
    Results actual = run(in);
    EXPECT_TRUE(actual.out[1][0].isnan().all().item<bool>());
    EXPECT_TRUE(actual.grad_filter[0].isnan().all().item<bool>());
    actual.out[1][0].copy_(expected.out[1][0]);
    EXPECT_TRUE(at::equal(actual.out, expected.out));
    EXPECT_TRUE(at::equal(actual.grad_x, expected.grad_x));
    EXPECT_TRUE(at::equal(actual.grad_filter[1], expected.grad_filter[1]));

    in = clean;
    in.filter = clean.filter.clone();
    in.filter[1][3].fill_(bad);
    actual = run(in);
    EXPECT_TRUE(actual.out.select(1, 1).isnan().all().item<bool>());
    EXPECT_TRUE(at::equal(actual.out.select(1, 0), expected.out.select(1, 0)));
    EXPECT_TRUE(at::equal(actual.grad_x.select(1, 0), expected.grad_x.select(1, 0)));
    EXPECT_TRUE(at::equal(actual.grad_filter, expected.grad_filter));
  }
}

TEST_P(LongConvolution, IsTheSameForAnyNumberOfThreadsAndTwice) {
  const Inputs in = inputs({3, 7, 1500}, 1500, GetParam());
  const Results first = run(in);
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 5}) {
    at::set_num_threads(count);
    const Results again = run(in);
    EXPECT_TRUE(at::equal(again.out, first.out));
    EXPECT_TRUE(at::equal(again.grad_x, first.grad_x));
    EXPECT_TRUE(at::equal(again.grad_filter, first.grad_filter));
    EXPECT_TRUE(at::equal(again.grad_bias, first.grad_bias));
  }
  at::set_num_threads(threads);
}

TEST_P(LongConvolution, EachGradientAloneIsTheSame) {
  const Inputs in = inputs({2, 3, 400}, 300, GetParam());
  const Results all = run(in);
  const Tensor x = leaf(in.x);
  const Tensor filter = leaf(in.filter);
  const Tensor bias = leaf(*in.bias);
  const auto gradient = [&](const Tensor& out, const Tensor& input) {
    return torch::autograd::grad({out}, {input}, {in.grad_out})[0];
  };
  EXPECT_TRUE(at::equal(gradient(long_convolution(x, in.filter, in.bias), x), all.grad_x));
  EXPECT_TRUE(
      at::equal(gradient(long_convolution(in.x, filter, in.bias), filter), all.grad_filter));
  EXPECT_TRUE(at::equal(gradient(long_convolution(in.x, in.filter, bias), bias), all.grad_bias));
  EXPECT_TRUE(at::equal(gradient(long_convolution(x, filter, bias), x), all.grad_x));
}

// Of the composition that needs no kernel of ours.
Tensor composed(const Tensor& x, const Tensor& filter, const Tensor& bias) {
  const int64_t length = x.size(2);
  const Tensor spectrum = at::fft_rfft(x, 2 * length).mul(at::fft_rfft(filter, 2 * length));
  return at::fft_irfft(spectrum, 2 * length).narrow(2, 0, length).add(x.mul(bias.unsqueeze(1)));
}

TEST(LongConvolutionMemory, KeepsNothingForBackwardAndTakesAFractionOfTheComposition) {
  tensor::memory::install_counting_allocator();
  at::manual_seed(33);
  const Inputs in = inputs({2, 16, 4096}, 4096, at::kFloat);
  const auto live = [] { return tensor::memory::live_bytes().total(); };
  const auto measure = [&](const auto& operation) {
    const Tensor x = leaf(in.x);
    const Tensor filter = leaf(in.filter);
    const Tensor bias = leaf(*in.bias);
    const int64_t before = live();
    tensor::memory::reset_peak();
    const Tensor out = operation(x, filter, bias);
    const int64_t kept = live() - before;
    torch::autograd::grad({out}, {x, filter, bias}, {in.grad_out});
    return std::pair(kept, tensor::memory::peak_bytes().total() - before);
  };
  const auto [kept, peak] = measure([](const Tensor& x, const Tensor& filter, const Tensor& bias) {
    return long_convolution(x, filter, bias);
  });
  const auto [composed_kept, composed_peak] = measure(composed);
  EXPECT_EQ(kept, static_cast<int64_t>(in.x.nbytes()));
  EXPECT_GE(composed_kept, 3 * kept);
  EXPECT_LE(peak, composed_peak / 3);
}

TEST(LongConvolutionInFp64, GradientsAreTheFiniteDifferences) {
  at::manual_seed(32);
  const Inputs in = inputs({2, 2, 9}, 9, at::kDouble, at::kDouble);
  Inputs wide_in = in;
  wide_in.bias = in.bias->to(at::kDouble);
  const Results results = run(wide_in);
  const auto objective = [&] {
    return long_convolution(wide_in.x, wide_in.filter, wide_in.bias)
        .mul(wide_in.grad_out)
        .sum()
        .item<double>();
  };
  // The objective is linear in each number, so a difference has rounding errors alone.
  const auto expect_differences = [&](const Tensor& input, const Tensor& gradient) {
    const Tensor numbers = input.view(-1);
    const Tensor expected = gradient.reshape(-1);
    for (int64_t i = 0; i < numbers.numel(); ++i) {
      const double before = objective();
      numbers[i].add_(1);
      EXPECT_NEAR(objective() - before, expected[i].item<double>(), 1e-10);
      numbers[i].sub_(1);
    }
  };
  expect_differences(wide_in.x, results.grad_x);
  expect_differences(wide_in.filter, results.grad_filter);
  expect_differences(*wide_in.bias, results.grad_bias);
}

TEST(LongConvolutionRefuses, OtherShapesAndDtypes) {
  const Tensor x = random({2, 3, 40}, at::kFloat);
  const Tensor filter = random({3, 40}, at::kFloat);
  const auto failure = [](const Tensor& x_in, const Tensor& filter_in, const OptionalTensor& bias) {
    return message_of<InvalidArgument>([&] { long_convolution(x_in, filter_in, bias); });
  };
  EXPECT_EQ(failure(x[0][0], filter, {}),
            "long_convolution: x has shape [40]; pass (batch, channels, length)");
  EXPECT_EQ(failure(x, filter[0], {}),
            "long_convolution: the filter has shape [40] for an input of shape [2, 3, 40]; pass "
            "(channels, taps)");
  EXPECT_EQ(failure(x, random({3, 0}, at::kFloat), {}),
            "long_convolution: the filter has shape [3, 0] for an input of shape [2, 3, 40]; pass "
            "(channels, taps)");
  EXPECT_EQ(failure(x, filter, random({2}, at::kFloat)),
            "long_convolution: the bias has shape [2]; pass the 3 channels of the input");
  EXPECT_EQ(failure(x.to(at::kLong), filter, {}),
            "long_convolution: an argument is Long; pass FP32, BF16, FP16 or FP64");
  EXPECT_EQ(failure(x, filter.to(at::kMeta), {}),
            "long_convolution: arguments are on cpu and meta; pass one device");
}

TEST(LongConvolutionRefuses, AFilterThatWasChangedBeforeBackward) {
  const Tensor x = random({2, 3, 40}, at::kFloat);
  const Tensor filter = random({3, 40}, at::kFloat);
  const Tensor leaf_x = leaf(x);
  const Tensor out = long_convolution(leaf_x, filter);
  filter.mul_(2);
  EXPECT_NE(failure_of([&] {
              torch::autograd::grad({out.sum()}, {leaf_x});
            }).find("modified by an inplace operation"),
            std::string::npos);
}

TEST(LongConvolutionRefuses, SecondDerivatives) {
  const Tensor x = leaf(random({2, 3, 40}, at::kFloat));
  const Tensor out = long_convolution(x, random({3, 40}, at::kFloat));
  EXPECT_THROW(torch::autograd::grad({out.sum()}, {x}, {}, std::nullopt, /*create_graph=*/true),
               Unsupported);
}

}  // namespace
}  // namespace mantissa::ops
