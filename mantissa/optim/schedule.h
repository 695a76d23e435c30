#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::optim {

/// `constant`, `cosine` (Loshchilov and Hutter, "SGDR", 2017, one period) or `inverse_sqrt`
/// (Vaswani et al., "Attention is all you need", 2017), each after a linear warm-up.
enum class ScheduleKind : uint8_t { constant, cosine, inverse_sqrt };

MANTISSA_API std::string_view to_string(ScheduleKind kind);

/// Throws InvalidArgument with the nearest valid name.
MANTISSA_API ScheduleKind parse_schedule_kind(std::string_view name);

/// The learning rate as a function of the number of applied steps, so that a skipped step does not
/// move it. A value: it compares, and its text is its fields.
struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  double lr = 1e-3;          // the highest, reached by the last step of the warm-up
  int64_t warmup_steps = 0;  // 0: none; inverse_sqrt needs at least 1
  int64_t total_steps = 0;   // of cosine only, with the warm-up; after it the rate stays at `floor`
  double floor = 0;          // of cosine only: the lowest rate, not a fraction

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// Throws InvalidArgument for values out of range, and for settings that `kind` would ignore.
MANTISSA_API void validate(const Schedule& schedule);

/// The rate of the next update when `applied_steps` were applied before it, which is >= 0. With
/// w = warmup_steps and n = applied_steps:
///     n < w:         lr (n + 1) / w
///     constant:      lr
///     cosine:        floor + (lr - floor) (1 + cos(pi p)) / 2,  p = (n - w) / (total_steps - w)
///     inverse_sqrt:  lr sqrt(w / (n + 1))
/// Throws as `validate`.
MANTISSA_API double lr_at(const Schedule& schedule, int64_t applied_steps);

/// The same of a count on a device, a 0-d int64 tensor that is not negative, as
/// Optimizer::applied_steps(): a 0-d tensor beside it. Does not wait for the device. In FP64, where
/// it is the same number but for the errors of the device's cosine and root, which differ in the
/// last bits; or in FP32 on a device without FP64 (tensor::wide_dtype).
MANTISSA_API at::Tensor lr_at(const Schedule& schedule, const at::Tensor& applied_steps);

}  // namespace mantissa::optim
