#include "mantissa/monitor/ranges.h"

#include <limits>

#include <gmock/gmock.h>

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::monitor {
namespace {

using numerics::Format;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

Range range_of(ValueKind kind, const std::vector<float>& values) {
  Range range{kind, "head", "aten::mm", "fp32", {}};
  range.values = numerics::exponent_histogram(values);
  return range;
}

std::vector<std::string> names(const std::vector<Range>& ranges) {
  std::vector<std::string> result;
  for (const Range& range : ranges) {
    result.push_back(range.name);
  }
  return result;
}

// More pieces than one, layouts that are no line in memory, all dtypes.
TEST(HistogramOf, CountsEachElementOfAnyLayoutOnce) {
  at::manual_seed(3);
  const at::Tensor base = at::randn({300, 700});
  const auto reference = [](const at::Tensor& tensor) {
    const at::Tensor line = tensor.to(at::kFloat).contiguous();
    return numerics::exponent_histogram_reference(
        {line.const_data_ptr<float>(), static_cast<size_t>(line.numel())});
  };
  for (const at::Tensor& tensor :
       {base, base.t(), base.slice(1, 3, 160, 7), base[0].expand({5, 700}), base.to(at::kHalf).t(),
        base.to(at::kBFloat16), base.to(at::kDouble), at::randn({}), at::zeros({0})}) {
    EXPECT_EQ(histogram_of(tensor), reference(tensor)) << tensor.sizes() << tensor.dtype();
  }
}

TEST(HistogramOf, AddsUpEqualIndicesOfASparseTensorFirst) {
  const at::Tensor sparse =
      at::sparse_coo_tensor(at::zeros({1, 2}, at::kLong), at::full({2}, 1.0F), {5});
  const numerics::ExponentHistogram histogram = histogram_of(sparse);
  EXPECT_EQ(histogram.count, 1);
  EXPECT_EQ(histogram.largest, 2);
}

TEST(HistogramOf, RefusesWhatNoTrainingHas) {
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)histogram_of(at::zeros({2}, at::kLong)); }),
            "histogram_of: the tensor is Long; pass Float, BFloat16, Half or Double");
}

TEST(Ranges, CountUnderTheirKindScopeAndName) {
  Ranges ranges;
  ranges.add(ValueKind::activation, "a", "aten::mm", at::full({2}, 4.0F));
  ranges.add(ValueKind::gradient, "a", "aten::mm", at::full({2}, 4.0F));
  ranges.add(ValueKind::activation, "a", "aten::mm", at::full({3}, 8, at::kHalf));
  ranges.add(ValueKind::activation, "a", "aten::mm", at::zeros({3}, at::kLong));
  ranges.add(ValueKind::activation, "a", "aten::mm", at::Tensor());
  ASSERT_EQ(ranges.all().size(), 2U);
  EXPECT_EQ(ranges.all()[0].values.count, 5);
  EXPECT_EQ(ranges.all()[0].values.largest, 8);
  EXPECT_EQ(ranges.all()[0].format, "fp32 fp16");
  EXPECT_EQ(ranges.all()[1].values.count, 2);

  Ranges sum;
  sum.merge(ranges);
  sum.merge(ranges);
  EXPECT_EQ(sum.all()[0].values.count, 10);
}

TEST(Ranges, ByScopeAreNamedAfterTheLargestOrTheFirstThatIsNotFinite) {
  Ranges ranges;
  ranges.add(ValueKind::activation, "a", "small", at::full({2}, 4.0F));
  ranges.add(ValueKind::activation, "a", "large", at::full({2}, 64.0F));
  ranges.add(ValueKind::activation, "b", "large", at::full({2}, 64.0F));
  ranges.add(ValueKind::activation, "b", "infinite", at::full({2}, kInf));
  ranges.add(ValueKind::activation, "b", "half", at::full({2}, 1, at::kHalf));
  const std::vector<Range> scopes = by_scope(ranges.all());
  EXPECT_THAT(names(scopes), ElementsAre("large", "infinite", "half"));
  EXPECT_EQ(scopes[0].values.count, 4);
  EXPECT_EQ(scopes[0].values.smallest, 4);
}

TEST(Judge, WorstComesFirst) {
  const auto verdict = [](const std::vector<float>& values, Format format) {
    return judge(range_of(ValueKind::activation, values), format);
  };
  EXPECT_EQ(verdict({1, kInf, 1e6}, Format::fp16), Verdict::not_finite);
  EXPECT_EQ(verdict({1, 1e6}, Format::fp16), Verdict::overflow);
  EXPECT_EQ(verdict({1, 1e6}, Format::bf16), Verdict::fits);
  EXPECT_EQ(verdict({1, 8192}, Format::fp16), Verdict::near_overflow);  // 2.9995 bits
  EXPECT_EQ(verdict({1, 8188}, Format::fp16), Verdict::fits) << "3 bits";
  EXPECT_EQ(verdict({1, 1e-9F}, Format::fp16), Verdict::underflow);
  EXPECT_EQ(verdict({1, 0}, Format::fp16), Verdict::fits) << "a zero loses nothing";

  // 1 of 20 is the share from which it is told.
  std::vector<float> values(20, 1.0F);
  values[0] = 1e-9F;
  EXPECT_EQ(verdict(values, Format::fp16), Verdict::underflow);
  values.push_back(1);
  EXPECT_EQ(verdict(values, Format::fp16), Verdict::fits);
}

TEST(Advice, SaysWhatHelpsWhere) {
  const auto of = [](ValueKind kind, const std::vector<float>& values) {
    return advice(range_of(kind, values), Format::fp16);
  };
  EXPECT_EQ(of(ValueKind::activation, {1e6}), "scope:head=fp32, or bf16");
  EXPECT_EQ(of(ValueKind::weight, {1e6}), "parameter:head.aten::mm=fp32, or bf16");
  EXPECT_EQ(of(ValueKind::gradient, {65504.0F * 4}), "lower the loss scale by 2^3");
  // 2^-20 leaves room for 2^35 (35.9998 bits); a bit of it stays.
  EXPECT_EQ(of(ValueKind::gradient, {0x1p-20F, 1e-9F}), "a loss scale of 2^34 times this one");
  EXPECT_EQ(of(ValueKind::update, {1, 1e-9F}), "FP32 masters (the default)");
  EXPECT_THAT(of(ValueKind::activation, {9000}), HasSubstr("watch it"));
  EXPECT_EQ(of(ValueKind::activation, {1}), "");
}

TEST(WorstFirst, IsByVerdictThenByHeadroom) {
  std::vector<Range> ranges = {
      range_of(ValueKind::activation, {1}), range_of(ValueKind::activation, {100}),
      range_of(ValueKind::activation, {1e6F}), range_of(ValueKind::activation, {1e-9F}),
      range_of(ValueKind::activation, {kInf})};
  const std::vector<Range> sorted = worst_first(ranges, Format::fp16);
  std::vector<Verdict> verdicts;
  for (const Range& range : sorted) {
    verdicts.push_back(judge(range, Format::fp16));
  }
  EXPECT_THAT(verdicts, ElementsAre(Verdict::not_finite, Verdict::overflow, Verdict::underflow,
                                    Verdict::fits, Verdict::fits));
  EXPECT_EQ(sorted[3].values.largest, 100);
}

}  // namespace
}  // namespace mantissa::monitor
