#include "mantissa/optim/schedule.h"

#include <cmath>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::optim {
namespace {

TEST(Schedule, WarmsUpLinearlyToTheFullRate) {
  for (ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::cosine, ScheduleKind::inverse_sqrt}) {
    const Schedule schedule = {kind, 0.5, 4, kind == ScheduleKind::cosine ? 10 : 0, 0};
    EXPECT_EQ(lr_at(schedule, 0), 0.125) << to_string(kind);
    EXPECT_EQ(lr_at(schedule, 1), 0.25);
    EXPECT_EQ(lr_at(schedule, 3), 0.5);
  }
}

TEST(Schedule, ConstantStays) {
  EXPECT_EQ(lr_at({.lr = 0.5}, 0), 0.5);
  EXPECT_EQ(lr_at({.lr = 0.5}, 1'000'000), 0.5);
}

TEST(Schedule, CosineFallsFromTheRateToTheFloorAndStaysThere) {
  const Schedule schedule = {ScheduleKind::cosine, 1.0, 2, 12, 0.2};
  EXPECT_EQ(lr_at(schedule, 2), 1.0);
  EXPECT_NEAR(lr_at(schedule, 7), 0.6, 1e-15) << "half-way";
  EXPECT_NEAR(lr_at(schedule, 12), 0.2, 1e-15);
  EXPECT_EQ(lr_at(schedule, 500), lr_at(schedule, 12));
  for (int64_t step = 2; step < 12; ++step) {
    EXPECT_GT(lr_at(schedule, step), lr_at(schedule, step + 1));
  }
}

TEST(Schedule, InverseSqrtContinuesTheWarmUpAndHalvesInFourTimesTheSteps) {
  const Schedule schedule = {ScheduleKind::inverse_sqrt, 1.0, 100};
  EXPECT_EQ(lr_at(schedule, 99), 1.0);
  EXPECT_EQ(lr_at(schedule, 100), std::sqrt(100.0 / 101));
  EXPECT_EQ(lr_at(schedule, 399), 0.5);
}

TEST(Schedule, NamesRoundTripAndASlipIsCorrected) {
  for (ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::cosine, ScheduleKind::inverse_sqrt}) {
    EXPECT_EQ(parse_schedule_kind(to_string(kind)), kind);
  }
  try {
    (void)parse_schedule_kind("cosin");
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "schedule: unknown kind \"cosin\"; did you mean \"cosine\"?");
  }
}

at::Tensor count(int64_t steps) { return at::full({}, steps, at::TensorOptions(at::kLong)); }

// The same operations in FP64, each rounded once, but for root and cosine, of which two libraries
// are within one unit in the last place of the true one. With u = 2^-53 and all roots, cosines and
// 1 + cos up to 2: roots are 2 u relative apart and their products with lr one rounding more;
// cosines 2 u apart, which (lr - floor) / 2 scales, and then 1 + cos, two products and a sum of up
// to 2, 2, 1 and 1 times lr round on either side.
TEST(Schedule, OfACountOnTheDeviceIsTheSameNumber) {
  const std::vector<Schedule> schedules = {{.lr = 0.3},
                                           {.lr = 0.3, .warmup_steps = 7},
                                           {ScheduleKind::cosine, 0.3, 0, 90, 0.01},
                                           {ScheduleKind::cosine, 0.3, 7, 90, 0},
                                           {ScheduleKind::inverse_sqrt, 0.3, 7}};
  for (const Schedule& schedule : schedules) {
    const double roundings = schedule.kind == ScheduleKind::cosine         ? 1 + 2 * 6
                             : schedule.kind == ScheduleKind::inverse_sqrt ? 2 + 2
                                                                           : 0;
    const double bound = 0.3 * roundings * 0x1p-53;
    for (int64_t n = 0; n < 100; ++n) {
      const at::Tensor rate = lr_at(schedule, count(n));
      ASSERT_EQ(rate.scalar_type(), at::kDouble);
      ASSERT_EQ(rate.dim(), 0);
      EXPECT_NEAR(rate.item<double>(), lr_at(schedule, n), n < schedule.warmup_steps ? 0 : bound)
          << to_string(schedule.kind) << " " << n;
    }
  }
}

TEST(Schedule, OfACountThatIsNoneIsAnError) {
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)lr_at(Schedule(), at::ones({1}, at::kLong)); }),
            "schedule: applied_steps is not a 0-d Long tensor; pass that of the optimizer");
  EXPECT_THROW((void)lr_at({.lr = -1}, count(0)), InvalidArgument);
}

std::string message(const Schedule& schedule, int64_t applied_steps = 0) {
  try {
    (void)lr_at(schedule, applied_steps);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(Schedule, BadAndIgnoredSettingsAreErrors) {
  EXPECT_EQ(message({.lr = -1}), "schedule: lr is -1; it must be finite and not negative");
  EXPECT_EQ(message({.lr = std::nan("")}),
            "schedule: lr is nan; it must be finite and not negative");
  EXPECT_EQ(message({.warmup_steps = -2}), "schedule: warmup_steps is -2; it must not be negative");
  EXPECT_EQ(message({.kind = ScheduleKind::inverse_sqrt}),
            "schedule: warmup_steps is 0; inverse_sqrt starts from its end, give 1 or more");
  EXPECT_EQ(
      message({.kind = ScheduleKind::cosine, .warmup_steps = 5, .total_steps = 5}),
      "schedule: total_steps is 5 and warmup_steps 5; cosine needs more steps than its warm-up");
  EXPECT_EQ(message({.total_steps = 5}),
            "schedule: total_steps is 5, which constant ignores; leave it out or use cosine");
  EXPECT_EQ(message({.kind = ScheduleKind::inverse_sqrt, .warmup_steps = 1, .floor = 0.1}),
            "schedule: floor is 0.1, which inverse_sqrt ignores; leave it out or use cosine");
  EXPECT_EQ(message({.kind = ScheduleKind::cosine, .lr = 1, .total_steps = 5, .floor = 2}),
            "schedule: floor is 2; valid: 0 to lr, 1");
  EXPECT_EQ(message({}, -1), "schedule: applied_steps is -1; it must not be negative");
}

}  // namespace
}  // namespace mantissa::optim
