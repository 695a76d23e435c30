#include "mantissa/ops/linear_cross_entropy.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <torch/csrc/autograd/autograd.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/ops/composed/linear_cross_entropy.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/rounding_bound.h"
#include "mantissa/ops/tf32.h"
#include "mantissa/tensor/memory.h"

// N rows, D features, V classes.
namespace mantissa::ops {
namespace {

using at::Tensor;
using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  Tensor input;
  Tensor weight;
  std::optional<Tensor> bias;
  Tensor targets;
  LinearCrossEntropyOptions options;
  double scale = 1;  // of the loss, for backward
};

Case random_case(int64_t rows, int64_t features, int64_t classes, at::ScalarType dtype) {
  return {random({rows, features}, dtype),
          random({classes, features}, dtype),
          random({classes}, dtype),
          at::randint(classes, {rows}, at::kLong),
          {},
          1};
}

using Operation =
    std::function<Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&, const Case&)>;

Tensor fused(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
             const Case& c) {
  return linear_cross_entropy(input, weight, bias, c.targets, c.options);
}

// LibTorch's two operations, with the loss of FP32 logits.
Tensor in_two(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
              const Case& c) {
  const Tensor logits = at::linear(input, weight, bias);
  const bool is_double = logits.scalar_type() == at::kDouble;
  return at::cross_entropy_loss(is_double ? logits : logits.to(at::kFloat), c.targets, {},
                                c.options.reduction, c.options.ignore_index,
                                c.options.label_smoothing);
}

LinearCrossEntropy run(const Case& c, const Operation& operation = fused) {
  const auto leaf = [](const Tensor& tensor) { return tensor.detach().requires_grad_(); };
  const Tensor input = leaf(c.input);
  const Tensor weight = leaf(c.weight);
  const std::optional<Tensor> bias = c.bias ? std::optional(leaf(*c.bias)) : std::nullopt;
  const Tensor loss = operation(input, weight, bias, c);
  loss.mul(c.scale).backward();
  return {loss.detach(), input.grad(), weight.grad(), bias ? bias->grad() : Tensor()};
}

Tensor wide(const Tensor& tensor) { return tensor.to(at::kDouble); }

struct Exact {
  LinearCrossEntropy value;
  LinearCrossEntropy bound;
};

// Unit roundoffs to which something is rounded besides FP32 arithmetic.
struct Roundings {
  double logits = 0;
  double gradients = 0;  // of logits
  double underflow = 0;  // of them
  double products = 0;   // of them with factors
};

// The reference in FP64, and to first order the error of FP32 arithmetic and of one rounding of
// each gradient. With u of FP32 and magnitudes in place of numbers:
//   logits   eL = gamma(D + 2) (|X||W|^T + |b|)
//   p        relative: the errors of its own logit and of those of the normalizer, the differences
//            from the largest logit (u times each), 2 exponentials (1.01 ulp, 2.02 u each), 64
//            additions of a stream in FP32 and 4 factors
//   dL       share ((relative error of p) p + gamma(4) (p + wish))
//   dX, dW, db   products of what came before, sums of V, N and N terms
//   loss     per row the error of its own logit, of the largest, and of the sum
Exact exact(const Case& c, at::ScalarType dtype, const Roundings& more = {}) {
  const Tensor x = wide(c.input);
  const Tensor w = wide(c.weight);
  const auto rows = static_cast<double>(x.size(0));
  const auto features = static_cast<double>(x.size(1));
  const auto classes = static_cast<double>(w.size(0));
  Tensor logits = at::matmul(x, w.t());
  Tensor magnitude = at::matmul(x.abs(), w.abs().t());
  if (c.bias) {
    logits = logits.add(wide(*c.bias));
    magnitude = magnitude.add(wide(*c.bias).abs());
  }
  const Tensor counts = c.targets.ne(c.options.ignore_index);
  const Tensor of_row = counts.to(at::kDouble).unsqueeze(1);
  const double share =
      c.options.reduction == at::Reduction::Mean ? 1 / of_row.sum().item<double>() : 1;
  const Tensor p = logits.softmax(-1);
  const double smoothing = c.options.label_smoothing;
  const Tensor wish =
      at::full(p.sizes(), smoothing / classes, at::kDouble)
          .scatter_add(1, c.targets.masked_fill(counts.logical_not(), 0).unsqueeze(1),
                       at::full({x.size(0), 1}, 1 - smoothing, at::kDouble));
  const Tensor gradient = p.sub(wish).mul(of_row).mul(share);

  const Tensor logit_error =
      (magnitude.mul(gamma(features + 2)) + logits.abs().mul(more.logits * 1.01)).amax({1}, true);
  const Tensor range = (logits.amax({1}, true) - logits.amin({1}, true)).mul(2 * kFp32Roundoff);
  const Tensor p_error = (logit_error.mul(2) + range).expm1() + gamma(64 + 2 * 3 + 4);
  const Tensor gradient_error = (p.mul(p_error) + (p + wish).mul(gamma(4))).mul(of_row).mul(share) +
                                gradient.abs().mul(more.gradients * 1.01) + more.underflow * share;
  const Tensor size = gradient.abs() + gradient_error;
  const double product_input = gamma(classes + 2) + more.products;
  const double product_weight = gamma(rows + 10) + more.products;
  const Tensor row_error = (logit_error.mul(2) + p_error + range).mul(of_row);
  Exact result;
  result.value = linear_cross_entropy_reference(c.input, c.weight, c.bias, c.targets, c.options);
  const Tensor loss_error = row_error.sum().mul(share);
  result.bound.loss = after_rounding(loss_error, result.value.loss, at::kFloat);
  const auto scale = [&](Tensor& value, const Tensor& error, Tensor& bound) {
    value = value.mul(c.scale);
    bound =
        after_rounding(error.mul(std::abs(c.scale)) + value.abs().mul(kFp32Roundoff), value, dtype);
  };
  scale(result.value.grad_input,
        at::matmul(gradient_error, w.abs()) + at::matmul(size, w.abs()).mul(product_input),
        result.bound.grad_input);
  scale(result.value.grad_weight,
        at::matmul(gradient_error.t(), x.abs()) + at::matmul(size.t(), x.abs()).mul(product_weight),
        result.bound.grad_weight);
  scale(result.value.grad_bias, gradient_error.sum(0) + size.sum(0).mul(gamma(rows + 10)),
        result.bound.grad_bias);
  return result;
}

// What LibTorch's two operations round besides, and ours where it multiplies 16-bit factors by
// LibTorch's kernels.
Roundings of_format(at::ScalarType dtype) {
  if (dtype == at::kFloat) {
    return {};
  }
  const numerics::Format format = tensor::format_of(dtype);
  const double u = numerics::unit_roundoff(format);
  return {u, u, numerics::underflow_error(format), u};
}

void expect_exact(const LinearCrossEntropy& actual, const Exact& expected) {
  const auto expect = [](const char* name, const Tensor& value, const Tensor& exact_value,
                         const Tensor& bound) {
    SCOPED_TRACE(name);
    expect_within(value, exact_value, bound);
  };
  expect("loss", actual.loss, expected.value.loss, expected.bound.loss);
  expect("input", actual.grad_input, expected.value.grad_input, expected.bound.grad_input);
  expect("weight", actual.grad_weight, expected.value.grad_weight, expected.bound.grad_weight);
  if (actual.grad_bias.defined()) {
    expect("bias", actual.grad_bias, expected.value.grad_bias, expected.bound.grad_bias);
  }
}

void expect_same(const LinearCrossEntropy& a, const LinearCrossEntropy& b) {
  EXPECT_TRUE(at::equal(a.loss, b.loss));
  EXPECT_TRUE(at::equal(a.grad_input, b.grad_input));
  EXPECT_TRUE(at::equal(a.grad_weight, b.grad_weight));
  EXPECT_EQ(a.grad_bias.defined(), b.grad_bias.defined());
  if (a.grad_bias.defined()) {
    EXPECT_TRUE(at::equal(a.grad_bias, b.grad_bias));
  }
}

class LinearCrossEntropyOp : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    install_cpu_kernels();
    at::manual_seed(23);
  }
  static at::ScalarType dtype() { return GetParam(); }

  CpuKernelsGuard ours_{CpuKernels::ours};
};

INSTANTIATE_TEST_SUITE_P(Formats, LinearCrossEntropyOp,
                         testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         testing::PrintToStringParamName());

// N, D, V: single numbers, odd ones, those around a stream and a block of sums, several chunks.
constexpr int64_t kSizes[][3] = {{1, 1, 1},    {3, 5, 1},    {1, 3, 7},     {5, 1, 2},
                                 {33, 17, 7},  {16, 8, 16},  {70, 31, 65},  {4, 9, 1024},
                                 {6, 3, 1041}, {2, 2, 5000}, {801, 5, 3001}};

TEST_P(LinearCrossEntropyOp, IsWithinTheBoundOfFp32ArithmeticAndOneRounding) {
  for (const auto& [rows, features, classes] : kSizes) {
    SCOPED_TRACE(testing::Message() << rows << " x " << features << " x " << classes);
    Case c = random_case(rows, features, classes, dtype());
    const LinearCrossEntropy actual = run(c);
    EXPECT_EQ(actual.loss.scalar_type(), at::kFloat);
    EXPECT_EQ(actual.loss.dim(), 0);
    EXPECT_EQ(actual.grad_input.scalar_type(), dtype());
    EXPECT_EQ(actual.grad_weight.scalar_type(), dtype());
    EXPECT_EQ(actual.grad_bias.scalar_type(), dtype());
    expect_exact(actual, exact(c, dtype()));
  }
}

TEST_P(LinearCrossEntropyOp, TakesEveryOptionOfLibTorchs) {
  for (const bool has_bias : {true, false}) {
    for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
      for (const double smoothing : {0.0, 0.1, 1.0}) {
        for (const int64_t ignored : {-100, 3}) {
          SCOPED_TRACE(testing::Message() << has_bias << reduction << smoothing << ignored);
          Case c = random_case(37, 9, 11, dtype());
          c.bias = has_bias ? c.bias : std::nullopt;
          c.options = {reduction, ignored, smoothing};
          c.targets.narrow(0, 5, 12).fill_(ignored);
          c.scale = 3;
          expect_exact(run(c), exact(c, dtype()));
        }
      }
    }
  }
}

// The reference is LibTorch's composition in FP64: what differs is the order of FP64 sums.
TEST(LinearCrossEntropyReference, IsLibTorchsCompositionInFp64) {
  at::manual_seed(24);
  for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
    for (const double smoothing : {0.0, 0.3}) {
      Case c = random_case(19, 7, 13, at::kDouble);
      c.options = {reduction, -1, smoothing};
      c.targets.narrow(0, 2, 4).fill_(-1);
      const LinearCrossEntropy theirs = run(c, in_two);
      const LinearCrossEntropy reference =
          linear_cross_entropy_reference(c.input, c.weight, c.bias, c.targets, c.options);
      // In FP64 the operation itself is one of ATen operations.
      for (const LinearCrossEntropy& actual : {reference, run(c)}) {
        EXPECT_EQ(actual.loss.scalar_type(), at::kDouble);
        for (const auto& [a, b] : {std::pair(actual.loss, theirs.loss),
                                   {actual.grad_input, theirs.grad_input},
                                   {actual.grad_weight, theirs.grad_weight},
                                   {actual.grad_bias, theirs.grad_bias}}) {
          expect_within(a, b, at::full(b.sizes(), 1e-12, at::kDouble));
        }
      }
    }
  }
}

TEST_P(LinearCrossEntropyOp, IsWithinItsBoundWithEveryInstructionSet) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    Case c = random_case(21, 6, 1043, dtype());
    c.options.label_smoothing = 0.1;
    expect_exact(run(c), exact(c, dtype()));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST_P(LinearCrossEntropyOp, StridesDoNotMatter) {
  const Case c = random_case(40, 12, 9, dtype());
  const LinearCrossEntropy expected = run(c);
  const auto in_columns = [](const Tensor& tensor) { return tensor.t().contiguous().t(); };
  const auto every_second = [](const Tensor& tensor) {
    std::vector<int64_t> sizes = tensor.sizes().vec();
    sizes.back() *= 2;
    const Tensor spread = at::zeros(sizes, tensor.options());
    Tensor part = spread.slice(-1, 1, sizes.back(), 2);
    part.copy_(tensor);
    return part;
  };
  Case columns = c;
  columns.input = in_columns(c.input);
  columns.weight = in_columns(c.weight);
  expect_same(run(columns), expected);
  Case spread = c;
  spread.input = every_second(c.input);
  spread.weight = every_second(c.weight);
  spread.bias = every_second(*c.bias);
  spread.targets = every_second(c.targets);
  expect_same(run(spread), expected);
  Case repeated = c;
  repeated.input = c.input.narrow(0, 3, 1).expand({40, 12});
  Case copied = c;
  copied.input = repeated.input.contiguous();
  expect_same(run(repeated), run(copied));
}

TEST_P(LinearCrossEntropyOp, DoesNotDependOnTheNumberOfThreads) {
  const Case c = random_case(801, 40, 3001, dtype());
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const LinearCrossEntropy one = run(c);
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    expect_same(run(c), one);
  }
  at::set_num_threads(before);
}

// Gradients that FP16 holds only once they are scaled: the mean of many rows of small weights.
TEST(LinearCrossEntropyFp16, GradientsAreScaledBeforeTheyAreRounded) {
  install_cpu_kernels();
  const CpuKernelsGuard ours(CpuKernels::ours);
  at::manual_seed(25);
  Case c = random_case(512, 24, 40, at::kHalf);
  c.weight = random({40, 24}, at::kFloat).mul(1e-6).to(at::kHalf);
  c.bias = std::nullopt;
  EXPECT_EQ(run(c).grad_input.count_nonzero().item<int64_t>(), 0);
  c.scale = 65536;
  const LinearCrossEntropy actual = run(c);
  EXPECT_GT(actual.grad_input.count_nonzero().item<int64_t>(), 512 * 24 / 2);
  const Exact expected = exact(c, at::kHalf);
  expect_exact(actual, expected);
  // LibTorch's composition, which scales before its own roundings, is as near.
  Roundings more = of_format(at::kHalf);
  more.underflow /= c.scale;
  const LinearCrossEntropy composition = run(c, in_two);
  const Exact coarser = exact(c, at::kHalf, more);
  expect_exact(composition, coarser);
  expect_within(actual.grad_input, wide(composition.grad_input),
                expected.bound.grad_input + coarser.bound.grad_input);
  expect_within(actual.grad_weight, wide(composition.grad_weight),
                expected.bound.grad_weight + coarser.bound.grad_weight);
}

TEST(LinearCrossEntropyFp16, AScaleThatIsTooLargeOverflowsInBackwardAlone) {
  install_cpu_kernels();
  const CpuKernelsGuard ours(CpuKernels::ours);
  at::manual_seed(26);
  Case c = random_case(8, 4, 5, at::kHalf);
  c.options.reduction = at::Reduction::Sum;
  c.scale = 0x1p20;
  const LinearCrossEntropy actual = run(c);
  EXPECT_TRUE(actual.loss.isfinite().item<bool>());
  EXPECT_TRUE(actual.grad_weight.isinf().any().item<bool>());
  EXPECT_FALSE(actual.grad_weight.isnan().any().item<bool>());
}

// Probabilities near e^-12, far below the smallest normal of FP16.
TEST(LinearCrossEntropyFp16, AsAtenOperationsSmallProbabilitiesKeepTheirBits) {
  at::manual_seed(30);
  Case c = random_case(8, 3, 9, at::kHalf);
  c.bias = at::zeros({9}, at::kHalf);
  c.bias->index({0}).fill_(12);
  c.targets.fill_(0);
  const LinearCrossEntropy actual = composed::linear_cross_entropy(
      c.input, c.weight, c.bias, c.targets, c.options, {true, true, true}, 8);
  Roundings more = of_format(at::kHalf);
  more.logits = 0;            // products are FP32
  more.underflow *= 0x1p-13;  // gradients are lifted
  expect_exact(actual, exact(c, at::kFloat, more));
}

// Factors that are TF32 numbers already, so that the gradients of logits alone are rounded: by the
// unit roundoff of 11 bits.
TEST(LinearCrossEntropyTf32, RoundsWhatATensorCoreRounds) {
  install_cpu_kernels();
  at::manual_seed(27);
  Case c = random_case(33, 70, 41, at::kFloat);
  const LinearCrossEntropy fp32 = run(c);
  const Tf32Guard tf32(Tf32::on);
  const LinearCrossEntropy tf32_of_fp32 = run(c);
  EXPECT_FALSE(at::equal(tf32_of_fp32.loss, fp32.loss));
  c.input = round_to_tf32(c.input);
  c.weight = round_to_tf32(c.weight);
  const LinearCrossEntropy actual = run(c);
  Roundings more;
  more.gradients = 0x1p-11;
  expect_exact(actual, exact(c, at::kFloat, more));
  const Exact without = exact(c, at::kFloat);
  const Tensor error = wide(actual.grad_input).sub(without.value.grad_input).abs();
  EXPECT_TRUE(error.gt(without.bound.grad_input).any().item<bool>()) << "no gradient was rounded";
  EXPECT_TRUE(at::equal(actual.loss, tf32_of_fp32.loss));
  EXPECT_TRUE(at::equal(actual.grad_input, tf32_of_fp32.grad_input));
}

TEST_P(LinearCrossEntropyOp, AsAtenOperationsIsWithinTheBoundOfItsRoundings) {
  for (const bool has_bias : {true, false}) {
    for (const double smoothing : {0.0, 0.1}) {
      Case c = random_case(29, 21, 15, dtype());
      c.bias = has_bias ? c.bias : std::nullopt;
      c.options.label_smoothing = smoothing;
      c.targets[3].fill_(-100);
      const LinearCrossEntropy actual = composed::linear_cross_entropy(
          c.input, c.weight, c.bias, c.targets, c.options, {true, true, has_bias}, 8);
      EXPECT_EQ(actual.grad_input.scalar_type(), at::kFloat);
      Roundings more = of_format(dtype());
      more.gradients += gamma(15);  // sums of exponentials in FP32, in any order
      more.underflow *= 0x1p-13;    // gradients are lifted
      expect_exact(actual, exact(c, at::kFloat, more));
    }
  }
}

// What a processor with units for the format takes.
TEST_P(LinearCrossEntropyOp, WithLibTorchsKernelsItIsOneOfAtenOperations) {
  const CpuKernelsGuard stock(CpuKernels::stock);
  Case c = random_case(40, 21, 15, dtype());
  c.scale = 8;
  const LinearCrossEntropy actual = run(c);
  Roundings more = of_format(dtype());
  more.gradients += gamma(15);
  more.underflow *= 0x1p-13;
  expect_exact(actual, exact(c, dtype(), more));
  if (dtype() == at::kBFloat16) {
    const CpuKernelsGuard ours(CpuKernels::ours);
    EXPECT_FALSE(at::equal(run(c).grad_input, actual.grad_input)) << "the same kernel ran";
  }
}

TEST_P(LinearCrossEntropyOp, ComputesTheGradientsThatAreWanted) {
  const Case c = random_case(20, 6, 8, dtype());
  const LinearCrossEntropy all = run(c);
  for (const int which : {0, 1, 2}) {
    Tensor leaves[] = {c.input.detach(), c.weight.detach(), c.bias->detach()};
    leaves[which].requires_grad_();
    linear_cross_entropy(leaves[0], leaves[1], leaves[2], c.targets).backward();
    const Tensor expected[] = {all.grad_input, all.grad_weight, all.grad_bias};
    EXPECT_TRUE(at::equal(leaves[which].grad(), expected[which])) << which;
  }
  EXPECT_TRUE(at::equal(linear_cross_entropy(c.input, c.weight, c.bias, c.targets), all.loss));
  const Tensor leaf = c.input.detach().requires_grad_();
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(linear_cross_entropy(leaf, c.weight, c.bias, c.targets).requires_grad());
  }
  const c10::InferenceMode inference;
  EXPECT_TRUE(at::equal(linear_cross_entropy(leaf, c.weight, c.bias, c.targets), all.loss));
}

TEST_P(LinearCrossEntropyOp, BackwardOfAGraphThatIsKeptAddsUp) {
  Case c = random_case(20, 6, 8, dtype());
  const LinearCrossEntropy once = run(c);
  const Tensor input = c.input.detach().requires_grad_();
  const Tensor weight = c.weight.detach().requires_grad_();
  const Tensor loss = linear_cross_entropy(input, weight, c.bias, c.targets);
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_TRUE(at::equal(weight.grad(), once.grad_weight));
  loss.backward();
  EXPECT_TRUE(at::equal(weight.grad(), once.grad_weight.mul(2)));
  EXPECT_TRUE(at::equal(input.grad(), once.grad_input.mul(2)));
}

TEST_P(LinearCrossEntropyOp, GradientsOfGradientsAreRefused) {
  const Case c = random_case(4, 3, 5, dtype());
  const Tensor input = c.input.detach().requires_grad_();
  const Tensor loss = linear_cross_entropy(input, c.weight, c.bias, c.targets);
  const Tensor gradient =
      torch::autograd::grad({loss}, {input}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  EXPECT_TRUE(at::equal(gradient.detach(), run(c).grad_input));
  EXPECT_EQ(message_of<Unsupported>([&] { gradient.to(at::kFloat).sum().backward(); }),
            "linear_cross_entropy: its gradients were differentiated, which is not supported; use "
            "at::cross_entropy_loss of at::linear there");
}

// As LibTorch's: the mean of nothing is NaN, its sum 0, and there is nothing to learn from it.
TEST_P(LinearCrossEntropyOp, NothingThatCounts) {
  Case ignored = random_case(5, 3, 4, dtype());
  ignored.targets.fill_(-100);
  Case empty = random_case(0, 3, 4, dtype());
  for (Case* c : {&ignored, &empty}) {
    for (const auto kernels : {CpuKernels::ours, CpuKernels::stock}) {
      const CpuKernelsGuard guard(kernels);
      c->options.reduction = at::Reduction::Mean;
      LinearCrossEntropy actual = run(*c);
      EXPECT_TRUE(actual.loss.isnan().item<bool>());
      EXPECT_TRUE(at::equal(actual.grad_input, at::zeros_like(c->input)));
      EXPECT_TRUE(at::equal(actual.grad_weight, at::zeros_like(c->weight)));
      EXPECT_TRUE(at::equal(actual.grad_bias, at::zeros_like(*c->bias)));
      c->options.reduction = at::Reduction::Sum;
      actual = run(*c);
      EXPECT_EQ(actual.loss.item<float>(), 0);
      EXPECT_EQ(actual.grad_weight.count_nonzero().item<int64_t>(), 0);
    }
  }
}

TEST_P(LinearCrossEntropyOp, NanAndInfinityReachTheLossAndTheGradientsOfTheirRows) {
  for (const float special : {kNan, kInfinity}) {
    Case c = random_case(6, 3, 20, dtype());
    c.input[2][1].fill_(special);
    LinearCrossEntropy actual = run(c);
    EXPECT_FALSE(actual.loss.isfinite().item<bool>());
    EXPECT_TRUE(actual.grad_input[2].isnan().all().item<bool>());
    EXPECT_TRUE(actual.grad_input.narrow(0, 3, 3).isfinite().all().item<bool>());
    EXPECT_TRUE(actual.grad_weight.isnan().any().item<bool>());
    c.targets[2].fill_(-100);
    actual = run(c);
    EXPECT_TRUE(actual.loss.isfinite().item<bool>()) << "of an ignored row";
  }
}

// A bias of -infinity rules a class out: its probability is 0, and the loss of its rows infinite.
TEST_P(LinearCrossEntropyOp, AClassThatIsRuledOut) {
  Case c = random_case(6, 3, 20, dtype());
  c.bias->index({7}).fill_(-kInfinity);
  c.targets.fill_(3);
  const LinearCrossEntropy actual = run(c);
  EXPECT_TRUE(actual.loss.isfinite().item<bool>());
  EXPECT_EQ(actual.grad_weight[7].count_nonzero().item<int64_t>(), 0);
  c.targets[1].fill_(7);
  EXPECT_EQ(run(c).loss.item<float>(), kInfinity);
}

TEST(LinearCrossEntropyErrors, SayWhatWasFoundAndWhatToPass) {
  at::manual_seed(28);
  const Case good = random_case(4, 3, 5, at::kFloat);
  const auto message = [&](const std::function<void(Case&)>& change) {
    Case c = good;
    c.targets = good.targets.clone();
    change(c);
    return message_of<InvalidArgument>(
        [&] { (void)linear_cross_entropy(c.input, c.weight, c.bias, c.targets, c.options); });
  };
  EXPECT_EQ(message([](Case& c) { c.input = c.input.unsqueeze(0); }),
            "linear_cross_entropy: input has shape [1, 4, 3]; pass (rows, features)");
  EXPECT_EQ(message([](Case& c) { c.weight = c.weight.t(); }),
            "linear_cross_entropy: weight has shape [3, 5]; pass (classes, 3) for input of shape "
            "[4, 3]");
  EXPECT_EQ(message([](Case& c) { c.weight = c.weight.narrow(0, 0, 0); }),
            "linear_cross_entropy: weight has shape [0, 3]; pass (classes, 3) for input of shape "
            "[4, 3]");
  EXPECT_EQ(message([](Case& c) { c.bias = c.bias->narrow(0, 0, 2); }),
            "linear_cross_entropy: bias has shape [2]; pass one number for each of the 5 classes");
  EXPECT_EQ(message([](Case& c) { c.targets = c.targets.narrow(0, 0, 2); }),
            "linear_cross_entropy: targets have shape [2]; pass one for each of the 4 rows of "
            "input");
  EXPECT_EQ(message([](Case& c) { c.input = c.input.to(at::kLong); }),
            "linear_cross_entropy: input is Long; pass Float, BFloat16, Half or Double");
  EXPECT_EQ(message([](Case& c) { c.weight = c.weight.to(at::kHalf); }),
            "linear_cross_entropy: weight is Half and input Float; pass one dtype");
  EXPECT_EQ(message([](Case& c) { c.bias = c.bias->to(at::kHalf); }),
            "linear_cross_entropy: bias is Half and input Float; pass one dtype");
  EXPECT_EQ(message([](Case& c) { c.targets = c.targets.to(at::kFloat); }),
            "linear_cross_entropy: targets are Float; pass Long");
  EXPECT_THAT(message([](Case& c) { c.weight = c.weight.to(at::kMeta); }),
              HasSubstr("input is on cpu, weight on meta"));
  EXPECT_EQ(message([](Case& c) { c.options.reduction = at::Reduction::None; }),
            "linear_cross_entropy: reduction is None; pass Mean or Sum: the gradients are computed "
            "before that of each row is known");
  EXPECT_EQ(message([](Case& c) { c.options.label_smoothing = 1.5; }),
            "linear_cross_entropy: label_smoothing is 1.5; pass 0 to 1");
  for (const int64_t target : {5, -1}) {
    const std::string expected = concat("linear_cross_entropy: target ", target,
                                        " at index 2 is no class; pass 0 to 4, or ignore_index, "
                                        "-100");
    EXPECT_EQ(message([&](Case& c) { c.targets[2].fill_(target); }), expected);
    EXPECT_EQ(message([&](Case& c) {
                c.targets[2].fill_(target);
                c.input = c.input.to(at::kDouble);
                c.weight = c.weight.to(at::kDouble);
                c.bias = c.bias->to(at::kDouble);
              }),
              expected);
  }
}

TEST(LinearCrossEntropyMeta, KnowsShapesAndDtypes) {
  const auto meta = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
  const Tensor input = at::empty({6, 4}, meta).requires_grad_();
  const Tensor weight = at::empty({9, 4}, meta).requires_grad_();
  const Tensor loss =
      linear_cross_entropy(input, weight, {}, at::empty({6}, meta.dtype(at::kLong)));
  EXPECT_TRUE(loss.is_meta());
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  loss.backward();
  EXPECT_EQ(weight.grad().sizes(), weight.sizes());
  EXPECT_EQ(weight.grad().scalar_type(), at::kBFloat16);
}

// Logits, log-probabilities and gradients of logits, N V numbers each, are what LibTorch's two
// operations take at their peak.
TEST(LinearCrossEntropyMemory, IsBelowAnEighthOfLibTorchs) {
  tensor::memory::install_counting_allocator();
  at::manual_seed(29);
  Case c = random_case(3072, 8, 4096, at::kFloat);
  const auto extra = [&](const Operation& operation) {
    const int64_t before = tensor::memory::live_bytes().total();
    tensor::memory::reset_peak();
    (void)run(c, operation);
    return tensor::memory::peak_bytes().total() - before;
  };
  const int64_t theirs = extra(in_two);
  EXPECT_GE(theirs, 3 * 4 * 3072 * 4096);
  EXPECT_LE(extra(fused), theirs / 8);
}

}  // namespace
}  // namespace mantissa::ops
