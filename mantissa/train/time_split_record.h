#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/monitor/operation_times.h"
#include "mantissa/monitor/time_split.h"
#include "mantissa/record/event.h"
#include "mantissa/train/format_reason.h"

namespace mantissa::train {

/// The phases of a step as a record has them: all but a `replay` that was not needed. Until now.
MANTISSA_API std::map<std::string, double> phases_of(const monitor::TimeSplit& split);

/// Their sum.
MANTISSA_API double total_of(const std::map<std::string, double>& phases);

/// A step as a line of a record. `times` has ended, with `rows`; `phases` are those of its step.
/// Looking and casts are taken out of the phases. Rows of layers that differ in a number alone are
/// one. What ran again to explain a skip has no rows.
MANTISSA_API record::TimeSplit time_split_event(int64_t step, std::map<std::string, double> phases,
                                                const monitor::OperationTimes& times,
                                                const std::vector<monitor::OperationTime>& rows,
                                                const FormatReasons& reasons);

/// The rows in fewer lines: what 16 bits cannot do and takes less than a thousandth of the step is
/// one row a phase, `others`.
MANTISSA_API record::TimeSplit with_small_rows_together(record::TimeSplit split);

}  // namespace mantissa::train
