#include "mantissa/monitor/operation_times.h"

#include <algorithm>

#include <gmock/gmock.h>

#include <ATen/autocast_mode.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include "mantissa/base/error.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::monitor {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::Not;

using Rows = std::vector<OperationTime>;

template <typename Step>
Rows rows_of(const Step& step) {
  OperationTimes times;
  step();
  return times.finish();
}

// Those of that operation, added up over all other columns.
OperationTime sum_of(const Rows& rows, const std::string& operation) {
  OperationTime sum;
  for (const OperationTime& row : rows) {
    if (row.operation == operation) {
      const int64_t calls = sum.calls + row.calls;
      const double flops = sum.flops + row.flops;
      sum = row;
      sum.calls = calls;
      sum.flops = flops;
    }
  }
  return sum;
}

TEST(OperationTimes, AProductHasItsFormatWorkAndPlace) {
  const at::Tensor x = at::ones({2, 3}, at::kBFloat16);
  const at::Tensor w = at::ones({4, 3}, at::kBFloat16);
  const Rows rows = rows_of([&] {
    const tensor::Scope scope("blocks.0");
    for (int i = 0; i < 3; ++i) {
      (void)at::linear(x, w);
    }
  });
  const OperationTime mm = sum_of(rows, "aten::mm");
  EXPECT_EQ(mm.calls, 3);
  EXPECT_EQ(mm.scope, "blocks.0");
  EXPECT_EQ(mm.within, "aten::linear");
  EXPECT_EQ(mm.kind, OperationKind::product);
  EXPECT_EQ(mm.format, "bf16");
  EXPECT_TRUE(mm.on_cpu);
  EXPECT_EQ(mm.flops, 3 * 2 * 2 * 3 * 4);
  EXPECT_EQ(mm.bytes, 3 * 2 * (2 * 3 + 3 * 4 + 2 * 4));
  EXPECT_FALSE(mm.is_aligned);
  EXPECT_EQ(sum_of(rows, "aten::t").kind, OperationKind::view);
  EXPECT_EQ(sum_of(rows, "aten::t").bytes, 0);
}

TEST(OperationTimes, WhatBackwardCallsHasThePlaceOfTheForwardCall) {
  const at::Tensor w = at::ones({4, 3}).requires_grad_();
  const Rows rows = rows_of([&] {
    at::Tensor y;
    {
      const tensor::Scope scope("blocks.0");
      y = at::linear(at::ones({2, 3}), w);
    }
    y.sum().backward();
  });
  const OperationTime mm = sum_of(rows, "aten::mm");
  EXPECT_EQ(mm.calls, 2);
  EXPECT_EQ(mm.flops, 2 * (2 * 2 * 3 * 4));
  for (const OperationTime& row : rows) {
    if (row.operation == "aten::mm" || row.operation == "MmBackward0") {
      EXPECT_EQ(row.scope, "blocks.0");
      EXPECT_EQ(row.within, "aten::linear");
    }
  }
  EXPECT_EQ(sum_of(rows, "MmBackward0").calls, 1);
}

TEST(OperationTimes, AConvolutionIsOneRowWithAllThatItsKernelCalls) {
  const at::Tensor x = at::ones({1, 2, 9});
  const at::Tensor w = at::ones({4, 2, 3});
  const Rows rows = rows_of([&] { (void)at::conv1d(x, w); });
  EXPECT_EQ(sum_of(rows, "aten::convolution").calls, 1);
  EXPECT_EQ(sum_of(rows, "aten::convolution").flops, 2 * 7 * 4 * 2 * 3);
  EXPECT_THAT(rows, Not(Contains(Field(&OperationTime::operation, "aten::_convolution"))));
  EXPECT_THAT(rows, Not(Contains(Field(&OperationTime::operation, "aten::empty"))));
}

// at::autocast casts the arguments and calls the operation again.
TEST(OperationTimes, OfAnAutocastRegionCastsAreApartAndTheProductIsCountedOnce) {
  const at::Tensor w = at::ones({16, 8}).requires_grad_();
  const Rows rows = rows_of([&] {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const at::Tensor y = at::linear(at::ones({8, 8}), w);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    y.sum().backward();
  });
  EXPECT_EQ(sum_of(rows, "aten::linear").calls, 1);
  EXPECT_EQ(sum_of(rows, "autocast").calls, 1);
  const OperationTime mm = sum_of(rows, "aten::mm");
  EXPECT_EQ(mm.calls, 2) << "forward, and the gradient of the weight";
  EXPECT_EQ(mm.format, "bf16");
  const OperationTime cast = sum_of(rows, "aten::_to_copy");
  EXPECT_EQ(cast.kind, OperationKind::cast);
  EXPECT_EQ(cast.calls, 3) << "both arguments, and back the gradient of the weight";
  EXPECT_EQ(cast.within, "aten::linear");
  EXPECT_THAT(rows, Not(Contains(Field(&OperationTime::operation, "aten::copy_"))));
}

TEST(OperationTimes, RowsHaveThePhaseOfTheSplit) {
  TimeSplit split;
  OperationTimes times(&split);
  const at::Tensor w = at::ones({4, 4}).requires_grad_();
  at::Tensor y;
  {
    const TimeSplit::Scope forward(&split, Phase::forward);
    y = at::mm(w, w).sum();
  }
  {
    const TimeSplit::Scope backward(&split, Phase::backward);
    y.backward();
  }
  int64_t forward = 0;
  int64_t backward = 0;
  for (const OperationTime& row : times.finish()) {
    if (row.operation == "aten::mm") {
      (row.phase == Phase::forward ? forward : backward) += row.calls;
    }
  }
  EXPECT_EQ(forward, 1);
  EXPECT_EQ(backward, 2);
  EXPECT_GT(times.look_s(Phase::forward), 0);
  EXPECT_EQ(times.look_s(Phase::data), 0);
}

TEST(OperationTimes, RowsAndLookingAddUpToNoMoreThanTheWhole) {
  const at::Tensor w = at::ones({32, 32}).div(32).requires_grad_();
  const double begin = steady_seconds();
  OperationTimes times;
  at::mm(w, w).exp().mm(w).sum().backward();
  const Rows rows = times.finish();
  const double whole_s = steady_seconds() - begin;
  double sum = times.look_s(Phase::other);
  for (const OperationTime& row : rows) {
    EXPECT_GE(row.time_s, 0);
    sum += row.time_s;
  }
  EXPECT_LE(sum, whole_s);
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end(),
                             [](const auto& a, const auto& b) { return a.time_s > b.time_s; }));
}

TEST(OperationTimes, ChangesNoResult) {
  const auto gradient = [] {
    const at::Tensor w = at::ones({8, 8}).div(3).requires_grad_();
    at::mm(w, w).exp().log().sum().backward();
    return w.grad();
  };
  const at::Tensor plain = gradient();
  at::Tensor timed;
  (void)rows_of([&] { timed = gradient(); });
  EXPECT_TRUE(at::equal(plain, timed));
}

TEST(OperationTimes, ACallThatThrowsIsARowToo) {
  const Rows rows = rows_of([] {
    EXPECT_THROW(at::mm(at::ones({2, 3}), at::ones({2, 3})), c10::Error);
    (void)at::ones({2});
  });
  EXPECT_EQ(sum_of(rows, "aten::mm").calls, 1);
  EXPECT_EQ(sum_of(rows, "aten::ones").calls, 3);
}

TEST(OperationTimes, OneAtATime) {
  const OperationTimes first;
  EXPECT_THROW(OperationTimes second, InvalidArgument);
}

TEST(OperationTimes, NothingIsTimedOnceItHasEnded) {
  OperationTimes times;
  EXPECT_TRUE(times.finish().empty());
  (void)at::ones({2});
  EXPECT_TRUE(times.finish().empty());
}

}  // namespace
}  // namespace mantissa::monitor
