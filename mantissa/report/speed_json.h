#pragma once

#include <string>

#include "mantissa/base/api.h"
#include "mantissa/report/speed_facts.h"

namespace mantissa::report {

/// One object: the facts, what judge_speed makes of them (`verdict`, `why`, `advice`), `null` for
/// what is not known.
MANTISSA_API std::string to_json(const SpeedFacts& facts);

}  // namespace mantissa::report
