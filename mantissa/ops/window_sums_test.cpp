#include "mantissa/ops/window_sums.h"

#include <limits>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "mantissa/ops/rounding_bound.h"
#include "mantissa/ops/window_lines.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

using at::Tensor;
using numerics::Format;

Axis axis(int64_t source, int64_t windows, int64_t step, std::vector<int64_t> offsets) {
  Axis result = {source, windows, step, {}};
  for (size_t i = 0; i < offsets.size(); ++i) {
    result.taps.push_back({static_cast<int64_t>(i), offsets[i]});
  }
  return result;
}

struct Case {
  std::string name;
  Extent extent;
  Axes axes;
};

const Axis kNone = {};

std::vector<int64_t> range(int64_t first, int64_t count, int64_t step = 1) {
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < count; ++i) {
    offsets.push_back(first + i * step);
  }
  return offsets;
}

// Sizes around those of strips, tiles, parts and ranges; taps that ascend, descend, lie far apart,
// or meet zeros alone.
const std::vector<Case> kCases = {
    {"one number", {1, 1, 1, 1}, {kNone, kNone, kNone}},
    {"padded", {2, 1, 13, 5}, {kNone, kNone, axis(37, 37, 1, {-2, -1, 0, 1, 2})}},
    {"descending", {2, 1, 9, 5}, {kNone, kNone, axis(37, 40, 1, {2, 1, 0, -1, -2})}},
    {"step 2", {2, 1, 14, 3}, {kNone, kNone, axis(70, 34, 2, {-1, 0, 1, 2, 3})}},
    {"far apart", {1, 1, 8, 2}, {kNone, kNone, axis(700, 600, 1, {-300, 0, 50, 300})}},
    {"deep", {1, 1, 12, 130}, {kNone, kNone, axis(20, 20, 1, range(-2, 5))}},
    {"very deep", {1, 1, 8, 400}, {kNone, kNone, axis(20, 18, 1, {0, 1, 2, 3})}},
    {"wide", {3, 1, 8, 3}, {kNone, kNone, axis(410, 408, 1, {0, 1, 2})}},
    {"many rows", {1, 1, 130, 4}, {kNone, kNone, axis(35, 33, 1, {0, 1, 2})}},
    {"many channels", {1, 1, 10, 70}, {kNone, kNone, axis(35, 33, 1, {0, 1, 2})}},
    {"plane", {2, 1, 12, 3}, {kNone, axis(9, 9, 1, {-1, 0, 1}), axis(7, 7, 1, {-1, 0, 1})}},
    {"plane by steps",
     {2, 2, 9, 3},
     {kNone, axis(13, 6, 2, {-1, 0, 1}), axis(19, 6, 3, {-1, 1, 3})}},
    {"space",
     {2, 1, 8, 2},
     {axis(4, 3, 1, {0, 1}), axis(5, 5, 1, {-1, 0, 1}), axis(6, 3, 2, {0, 1})}},
    {"groups", {2, 3, 10, 9}, {kNone, kNone, axis(21, 19, 1, {0, 1, 2})}},
    {"depthwise", {3, 5, 1, 1}, {kNone, kNone, axis(900, 900, 1, {-1, 0, 1})}},
    {"depthwise, long", {1, 3, 1, 1}, {kNone, kNone, axis(300, 300, 1, range(-150, 301))}},
    {"depthwise by steps", {2, 3, 2, 1}, {kNone, kNone, axis(101, 50, 2, {0, 1, 2, 3})}},
    {"depthwise plane",
     {2, 4, 1, 1},
     {kNone, axis(11, 11, 1, {-1, 0, 1}), axis(50, 50, 1, {-1, 0, 1})}},
    {"few rows", {2, 2, 3, 40}, {kNone, kNone, axis(90, 88, 1, {0, 1, 2})}},
    {"no tap", {2, 1, 9, 2}, {kNone, kNone, axis(5, 4, 1, {})}},
};

/// A batch of channels as a tensor, by channels or, if `last`, by positions.
struct Numbers {
  Tensor tensor;
  Image image;
};

Numbers numbers(int64_t batch, int64_t channels, const std::array<int64_t, kAxes>& sizes,
                Format format, bool last) {
  const at::ScalarType dtype = format == Format::tf32 ? at::kFloat : tensor::dtype_of(format);
  Tensor tensor =
      last ? random({batch, sizes[0], sizes[1], sizes[2], channels}, dtype).permute({0, 4, 1, 2, 3})
           : random({batch, channels, sizes[0], sizes[1], sizes[2]}, dtype);
  return {tensor,
          {tensor.mutable_data_ptr(),
           format,
           tensor.stride(0),
           tensor.stride(1),
           {tensor.stride(2), tensor.stride(3), tensor.stride(4)}}};
}

Numbers numbers(int64_t batch, int64_t channels, const Axes& axes, int64_t Axis::*size,
                Format format, bool last) {
  return numbers(batch, channels, {axes[0].*size, axes[1].*size, axes[2].*size}, format, last);
}

Format stored(Format format) { return format == Format::tf32 ? Format::fp32 : format; }

// The filter as an image of groups, rows and channels in one.
Filter filter_of(const Numbers& weights, const Extent& extent, const Axes& axes) {
  const auto taps = taps_of(axes);
  return {weights.image.data,
          weights.image.format,
          extent.rows * extent.channels * taps,
          extent.channels * taps,
          taps,
          {weights.image.strides[0], weights.image.strides[1], weights.image.strides[2]}};
}

Numbers weights_of(const Case& c, Format format) {
  const auto count = [&](size_t i) { return std::ssize(c.axes[i].taps); };
  return numbers(1, c.extent.groups * c.extent.rows * c.extent.channels,
                 {count(0), count(1), count(2)}, format, false);
}

class WindowSumsTest : public testing::TestWithParam<Format> {
 protected:
  void SetUp() override { at::manual_seed(23); }

  // Equal bits, where NaN equals NaN.
  static void expect_same(const Tensor& actual, const Tensor& expected) {
    EXPECT_TRUE(at::equal(actual.isnan(), expected.isnan()));
    EXPECT_TRUE(
        at::equal(actual.to(at::kFloat).nan_to_num(), expected.to(at::kFloat).nan_to_num()));
  }

  static void change(const Numbers& numbers, bool whole) {
    if (whole) {  // sums of whole numbers are exact, also without fused multiply-adds
      numbers.tensor.copy_(numbers.tensor.mul(2).round());
    }
  }

  static void check_sums(const Case& c, bool last, bool whole = false) {
    const Extent& extent = c.extent;
    const Numbers source = numbers(extent.batch, extent.groups * extent.channels, c.axes,
                                   &Axis::source, GetParam(), last);
    const Numbers weights = weights_of(c, GetParam());
    change(source, whole);
    change(weights, whole);
    const Tensor bias = random({extent.groups * extent.rows}, at::kFloat).round();
    const auto run = [&](void (*add)(const WindowSums&)) {
      const Numbers result = numbers(extent.batch, extent.groups * extent.rows, c.axes,
                                     &Axis::windows, stored(GetParam()), last);
      add({extent, c.axes, source.image, filter_of(weights, extent, c.axes),
           bias.const_data_ptr<float>(), result.image});
      return result.tensor;
    };
    expect_same(run(&add_windows), run(&add_windows_reference));
  }

  static void check_gradient(const Case& c, bool last, bool whole = false) {
    const Extent& extent = c.extent;
    const Numbers source = numbers(extent.batch, extent.groups * extent.channels, c.axes,
                                   &Axis::source, GetParam(), last);
    const Numbers sums = numbers(extent.batch, extent.groups * extent.rows, c.axes, &Axis::windows,
                                 GetParam(), last);
    change(source, whole);
    change(sums, whole);
    const auto run = [&](void (*add)(const FilterGradient&)) {
      const Numbers gradient = weights_of(c, stored(GetParam()));
      add({extent, c.axes, source.image, sums.image, filter_of(gradient, extent, c.axes)});
      return gradient.tensor;
    };
    expect_same(run(&add_windows), run(&add_windows_reference));
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, WindowSumsTest,
                         testing::Values(Format::bf16, Format::fp16, Format::tf32, Format::fp32),
                         [](const testing::TestParamInfo<Format>& format) {
                           return std::string(to_string(format.param));
                         });

TEST_P(WindowSumsTest, SumsAreTheReferencesBitForBit) {
  for (const Case& c : kCases) {
    for (const bool last : {false, true}) {
      SCOPED_TRACE(c.name + (last ? ", channels last" : ""));
      check_sums(c, last);
    }
  }
}

TEST_P(WindowSumsTest, GradientsAreTheReferencesBitForBit) {
  for (const Case& c : kCases) {
    for (const bool last : {false, true}) {
      SCOPED_TRACE(c.name + (last ? ", channels last" : ""));
      check_gradient(c, last);
    }
  }
}

TEST_P(WindowSumsTest, AreExactWithEveryInstructionSet) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (const Case& c : kCases) {
      SCOPED_TRACE(std::string(hwy::TargetName(target)) + " " + c.name);
      check_sums(c, false, true);
      check_gradient(c, false, true);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST_P(WindowSumsTest, ChannelsAddUpToTheirExactSums) {
  for (const bool last : {false, true}) {
    const Axes axes = {kNone, axis(70, 70, 1, {0}), axis(33, 33, 1, {0})};
    const Numbers image = numbers(3, 70, axes, &Axis::source, stored(GetParam()), last);
    Tensor sums = at::full({70}, 7.0F);
    add_channels(image.image, axes, 3, 70, sums.mutable_data_ptr<float>());
    const Tensor wide = image.tensor.to(at::kDouble);
    const std::vector<int64_t> all = {0, 2, 3, 4};
    const Tensor exact = wide.sum(all);
    expect_within(sums, exact, sum_bound(exact, wide.abs().sum(all), 3 * 70 * 33, at::kFloat));
  }
}

TEST(TapGroups, ShareALineWithinItsReach) {
  const auto groups = [](const Axis& last) {
    std::vector<std::vector<int64_t>> shifts;
    for (const TapGroup& group : tap_groups({kNone, kNone, last})) {
      shifts.emplace_back();
      for (const TapGroup::Member& tap : group.taps) {
        shifts.back().push_back(tap.shift);
      }
    }
    return shifts;
  };
  using Shifts = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(groups(axis(9, 9, 1, {-1, 0, 1})), (Shifts{{0, 1, 2}}));
  EXPECT_EQ(groups(axis(9, 9, 1, {1, 0, -1})), (Shifts{{2, 1, 0}}));
  EXPECT_EQ(groups(axis(9, 4, 2, {-1, 0, 1, 2})), (Shifts{{0, 1}, {0, 1}}));
  EXPECT_EQ(groups(axis(9, 1, 1, {0, 1, 2, 3})), (Shifts{{0, 1, 2}, {0}}));
  EXPECT_EQ(groups(axis(999, 999, 1, {0, 128, 129})), (Shifts{{0, 128}, {0}}));
}

}  // namespace
}  // namespace mantissa::ops
