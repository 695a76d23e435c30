#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/report/attribution.h"
#include "mantissa/report/device_time.h"
#include "mantissa/report/gate.h"
#include "mantissa/report/study.h"

namespace mantissa::report {

/// Of the object below; see docs/formats/record.md.
inline constexpr int kStudySchema = 1;

/// All of a comparison as one JSON object in one line: what `mantissa compare --json` prints and
/// comparison.json holds. `hardware` is a sentence on this machine. What is not known is null, an
/// infinite number (a target that was not reached) too, and an attribution that was not asked for.
/// `devices` are empty where none was.
MANTISSA_API std::string to_json(const Study& study, const std::vector<GateResult>& gates,
                                 const std::string& hardware,
                                 const std::optional<Attribution>& attribution = {},
                                 const std::vector<DeviceTime>& devices = {});

}  // namespace mantissa::report
