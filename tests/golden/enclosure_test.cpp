#include "enclosure.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "curve.h"
#include "mantissa/base/error.h"
#include "phix174.h"

namespace mantissa::golden {
namespace {

using numerics::Format;

bool contains(const IntervalMatrix& enclosure, const Matrix& matrix) {
  return std::equal(matrix.values.begin(), matrix.values.end(), enclosure.values.begin(),
                    enclosure.values.end(),
                    [](float value, const Interval& interval) { return interval.contains(value); });
}

int64_t num_points(const IntervalMatrix& matrix) {
  return std::count_if(matrix.values.begin(), matrix.values.end(),
                       [](const Interval& value) { return value.is_point(); });
}

class EnclosureOf : public ::testing::TestWithParam<Format> {};

TEST_P(EnclosureOf, TheReferenceHoldsTheReference) {
  ReferenceTraining training(GetParam(), phix174());
  for (int64_t i = 0; i < kCurveSteps; ++i) {
    const Step step = training.step();
    SCOPED_TRACE(concat("step ", step.number));
    const Enclosure enclosure = enclose(GetParam(), step.before, step.batch, step.scale);
    EXPECT_TRUE(enclosure.loss.contains(step.loss)) << step.loss;
    ASSERT_EQ(enclosure.overflow, step.applied ? Overflow::none : Overflow::certain);
    if (step.applied) {
      EXPECT_TRUE(contains(enclosure.hidden_gradient, step.gradients.hidden));
      EXPECT_TRUE(contains(enclosure.output_gradient, step.gradients.output));
    }
  }
}

// What makes the comparison sharp: with 16-bit results hardly anything depends on the order of
// sums, so that a wrong rounding by half an ulp is seen.
TEST(Enclosure, SixteenBitGradientsAreNearlyAllPoints) {
  for (Format format : {Format::bf16, Format::fp16}) {
    ReferenceTraining training(format, phix174());
    int64_t all = 0;
    int64_t points = 0;
    for (int64_t i = 0; i < kCurveSteps; ++i) {
      const Step step = training.step();
      const Enclosure enclosure = enclose(format, step.before, step.batch, step.scale);
      if (enclosure.overflow == Overflow::none) {
        all += kHidden * (kInputs + kBases);
        points += num_points(enclosure.hidden_gradient) + num_points(enclosure.output_gradient);
      }
    }
    EXPECT_GT(100 * points, 98 * all) << to_string(format) << ": " << points << " of " << all;
  }
}

TEST_P(EnclosureOf, AStepDoesNotHoldThatOfAnotherFormat) {
  ReferenceTraining training(GetParam(), phix174());
  Step step = training.step();
  while (!step.applied) {
    step = training.step();
  }
  for (Format other : kCurveFormats) {
    const Enclosure enclosure = enclose(other, step.before, step.batch, step.scale);
    const bool holds = enclosure.loss.contains(step.loss) &&
                       contains(enclosure.hidden_gradient, step.gradients.hidden) &&
                       contains(enclosure.output_gradient, step.gradients.output);
    EXPECT_EQ(holds, other == GetParam()) << to_string(other);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EnclosureOf, ::testing::ValuesIn(kCurveFormats),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace mantissa::golden
