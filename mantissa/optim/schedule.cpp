#include "mantissa/optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
#include "mantissa/tensor/wide_dtype.h"

namespace mantissa::optim {
namespace {

constexpr std::array kKinds = {ScheduleKind::constant, ScheduleKind::cosine,
                               ScheduleKind::inverse_sqrt};

// Operation by operation as lr_at() of a number.
at::Tensor rate_after_warmup(const Schedule& schedule, const at::Tensor& steps) {
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  switch (schedule.kind) {
    case ScheduleKind::constant:
      return at::full_like(steps, schedule.lr);
    case ScheduleKind::cosine: {
      const double length = static_cast<double>(schedule.total_steps) - warmup;
      const at::Tensor progress = steps.sub(warmup).div(length).clamp_max(1);
      return progress.mul(std::numbers::pi)
          .cos()
          .add(1)
          .mul(schedule.lr - schedule.floor)
          .div(2)
          .add(schedule.floor);
    }
    case ScheduleKind::inverse_sqrt:
      return at::full_like(steps, warmup).div(steps.add(1)).sqrt().mul(schedule.lr);
  }
  MANTISSA_ASSERT(false);
}

}  // namespace

std::string_view to_string(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::constant:
      return "constant";
    case ScheduleKind::cosine:
      return "cosine";
    case ScheduleKind::inverse_sqrt:
      return "inverse_sqrt";
  }
  MANTISSA_ASSERT(false);
}

ScheduleKind parse_schedule_kind(std::string_view name) {
  return parse_enumerator(name, kKinds, "schedule: unknown kind");
}

void validate(const Schedule& schedule) {
  const bool cosine = schedule.kind == ScheduleKind::cosine;
  MANTISSA_CHECK(std::isfinite(schedule.lr) && schedule.lr >= 0, InvalidArgument,
                 "schedule: lr is ", schedule.lr, "; it must be finite and not negative");
  MANTISSA_CHECK(schedule.warmup_steps >= 0, InvalidArgument, "schedule: warmup_steps is ",
                 schedule.warmup_steps, "; it must not be negative");
  MANTISSA_CHECK(schedule.kind != ScheduleKind::inverse_sqrt || schedule.warmup_steps >= 1,
                 InvalidArgument,
                 "schedule: warmup_steps is 0; inverse_sqrt starts from its end, give 1 or more");
  MANTISSA_CHECK(!cosine || schedule.total_steps > schedule.warmup_steps, InvalidArgument,
                 "schedule: total_steps is ", schedule.total_steps, " and warmup_steps ",
                 schedule.warmup_steps, "; cosine needs more steps than its warm-up");
  MANTISSA_CHECK(cosine || schedule.total_steps == 0, InvalidArgument, "schedule: total_steps is ",
                 schedule.total_steps, ", which ", to_string(schedule.kind),
                 " ignores; leave it out or use cosine");
  MANTISSA_CHECK(!cosine || (schedule.floor >= 0 && schedule.floor <= schedule.lr), InvalidArgument,
                 "schedule: floor is ", schedule.floor, "; valid: 0 to lr, ", schedule.lr);
  MANTISSA_CHECK(cosine || schedule.floor == 0, InvalidArgument, "schedule: floor is ",
                 schedule.floor, ", which ", to_string(schedule.kind),
                 " ignores; leave it out or use cosine");
}

double lr_at(const Schedule& schedule, int64_t applied_steps) {
  validate(schedule);
  MANTISSA_CHECK(applied_steps >= 0, InvalidArgument, "schedule: applied_steps is ", applied_steps,
                 "; it must not be negative");
  const auto steps = static_cast<double>(applied_steps);
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  if (applied_steps < schedule.warmup_steps) {
    return schedule.lr * ((steps + 1) / warmup);
  }
  switch (schedule.kind) {
    case ScheduleKind::constant:
      return schedule.lr;
    case ScheduleKind::cosine: {
      const double length = static_cast<double>(schedule.total_steps) - warmup;
      const double progress = std::min(1.0, (steps - warmup) / length);
      return schedule.floor +
             (schedule.lr - schedule.floor) * (1 + std::cos(std::numbers::pi * progress)) / 2;
    }
    case ScheduleKind::inverse_sqrt:
      return schedule.lr * std::sqrt(warmup / (steps + 1));
  }
  MANTISSA_ASSERT(false);
}

at::Tensor lr_at(const Schedule& schedule, const at::Tensor& applied_steps) {
  validate(schedule);
  MANTISSA_CHECK(applied_steps.defined() && applied_steps.dim() == 0 &&
                     applied_steps.scalar_type() == at::kLong,
                 InvalidArgument,
                 "schedule: applied_steps is not a 0-d Long tensor; pass that of the optimizer");
  const at::Tensor steps = applied_steps.to(tensor::wide_dtype(applied_steps.device()));
  at::Tensor after = rate_after_warmup(schedule, steps);
  if (schedule.warmup_steps == 0) {
    return after;
  }
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  return at::where(steps.lt(warmup), steps.add(1).div(warmup).mul(schedule.lr), after);
}

}  // namespace mantissa::optim
