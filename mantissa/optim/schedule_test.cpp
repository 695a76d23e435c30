#include "mantissa/optim/schedule.h"

#include <cmath>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"

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
