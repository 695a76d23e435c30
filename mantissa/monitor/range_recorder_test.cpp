#include "mantissa/monitor/range_recorder.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include <gmock/gmock.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>

#include "mantissa/base/error.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::monitor {
namespace {

using ::testing::Contains;
using ::testing::Not;

const Range& find(const Ranges& ranges, ValueKind kind, const std::string& scope,
                  const std::string& name) {
  for (const Range& range : ranges.all()) {
    if (range.kind == kind && range.scope == scope && range.name == name) {
      return range;
    }
  }
  throw std::runtime_error("no range of " + scope + " " + name);
}

std::vector<std::string> activations(const Ranges& ranges) {
  std::vector<std::string> names;
  for (const Range& range : ranges.all()) {
    if (range.kind == ValueKind::activation) {
      names.push_back(range.name);
    }
  }
  return names;
}

// y = -(w w) over 4 by 4 ones: every number of it is known.
TEST(RangeRecorder, CountsActivationsGradientsWeightsAndUpdates) {
  const at::Tensor w = at::ones({4, 4}).requires_grad_();
  RangeRecorder recorder({.parameters = {{"layer.w", w}}});
  at::Tensor y;
  {
    const tensor::Scope scope("layer");
    y = at::mm(w, w).neg();
  }
  y.sum().mul(16).backward();
  {
    const at::NoGradGuard no_grad;
    w.sub_(w.grad().mul(0x1p-10));
  }
  recorder.finish();
  const Ranges& ranges = recorder.ranges();

  const auto& product = find(ranges, ValueKind::activation, "layer", "aten::mm").values;
  EXPECT_EQ(product.count, 16);
  EXPECT_EQ(product.bins[127 + 2], 16) << "4";
  EXPECT_EQ(find(ranges, ValueKind::activation, "layer", "aten::neg").values.largest, 4);
  EXPECT_EQ(find(ranges, ValueKind::gradient, "layer", "NegBackward0").values.largest, 16);
  EXPECT_EQ(find(ranges, ValueKind::gradient, "layer", "MmBackward0").values.largest, 16);
  EXPECT_EQ(find(ranges, ValueKind::gradient, "layer", "w").values.largest, 128) << "4 * 16 * 2";
  EXPECT_EQ(find(ranges, ValueKind::weight, "layer", "w").values.largest, 1) << "before the update";
  EXPECT_EQ(find(ranges, ValueKind::update, "layer", "w").values.largest, 0.125F);
  EXPECT_EQ(recorder.origin().operation, "");
}

TEST(RangeRecorder, AValueIsCountedOnceHoweverManyCallsReturnIt) {
  const at::Tensor w = at::ones({4, 3}).requires_grad_();
  RangeRecorder recorder({});
  const at::Tensor y = at::linear(at::ones({2, 3}), w).t().contiguous();
  recorder.finish();
  const std::vector<std::string> names = activations(recorder.ranges());
  EXPECT_THAT(names, Not(Contains("aten::linear"))) << "its product is that of aten::mm";
  EXPECT_THAT(names, Not(Contains("aten::t")));
  EXPECT_THAT(names, Not(Contains("aten::ones"))) << "a constant";
  int64_t count = 0;
  for (const Range& range : recorder.ranges().all()) {
    count += range.values.count;
  }
  EXPECT_EQ(count, 16) << "the product, and its copy in another order";
}

TEST(RangeRecorder, CallsOfAnOptimizerAreNoActivations) {
  const at::Tensor w = at::ones({4, 4}).requires_grad_();
  RangeRecorder recorder({});
  {
    const at::NoGradGuard no_grad;
    w.mul_(2);
  }
  recorder.finish();
  EXPECT_TRUE(recorder.ranges().all().empty());
}

TEST(RangeRecorder, WithoutParametersTheirGradientsAreThoseOfLeaves) {
  const at::Tensor w = at::ones({4, 4}).requires_grad_();
  RangeRecorder recorder({});
  w.mul(8).sum().backward();
  recorder.finish();
  EXPECT_EQ(find(recorder.ranges(), ValueKind::gradient, "", "torch::autograd::AccumulateGrad")
                .values.largest,
            8);
}

TEST(RangeRecorder, UpdatesAreThoseOfTheMasters) {
  const at::Tensor w = at::ones({4}, at::kBFloat16);
  const at::Tensor master = at::ones({4});
  RangeRecorder recorder(
      {.parameters = {{"w", w}}, .master = [&](const tensor::Parameter&) { return master; }});
  master.add_(0x1p-12);  // less than half of what BF16 tells apart: w stays as it is
  recorder.finish();
  EXPECT_EQ(find(recorder.ranges(), ValueKind::update, "", "w").values.largest, 0x1p-12F);
}

TEST(RangeRecorder, NamesTheOperationThatMadeTheFirstNonfiniteValue) {
  const at::Tensor w = at::zeros({4}).requires_grad_();
  RangeRecorder recorder({.parameters = {{"w", w}}});
  at::Tensor y;
  {
    const tensor::Scope scope("attention");
    y = w.log();
  }
  at::relu(y.add(1)).sum().backward();
  recorder.finish();
  EXPECT_EQ(recorder.origin().operation, "aten::log");
  EXPECT_EQ(recorder.origin().scope, "attention");
  EXPECT_EQ(recorder.origin().value, -std::numeric_limits<double>::infinity());
}

// The sum of finite FP32 numbers may overflow: that is no finding.
TEST(RangeRecorder, LargeFiniteValuesAreFinite) {
  const at::Tensor w = at::full({4}, 3e38F).requires_grad_();
  RangeRecorder recorder({});
  const at::Tensor y = w.mul(1);
  recorder.finish();
  EXPECT_EQ(recorder.origin().operation, "");
}

TEST(RangeRecorder, ChangesNoResultAndLeavesNoHook) {
  const auto gradient = [](bool is_recorded) {
    const at::Tensor w = at::ones({8, 8}).div(3).requires_grad_();
    {
      std::optional<RangeRecorder> recorder;
      if (is_recorded) {
        recorder.emplace(RangeOptions{.parameters = {{"w", w}}});
      }
      at::mm(w, w).exp().log().sum().backward();
    }
    at::mm(w, w).sum().backward();  // after the recorder has gone
    return w.grad();
  };
  EXPECT_TRUE(at::equal(gradient(false), gradient(true)));
}

}  // namespace
}  // namespace mantissa::monitor
