#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/report/study.h"

namespace mantissa::report {

enum class GateKind : uint8_t {
  quality,  // equivalent to the reference; inconclusive and not tested do not pass
  speed,    // at least `bound` times as fast as the reference, the lower end of the interval
  memory,   // at most `bound` of the peak of the reference
  target,   // reached by each run
  cost,     // to the target, at most `bound`
};

/// What every arm beside the reference is to hold.
struct Gate {
  GateKind kind = GateKind::quality;
  double bound = 0;  // not of quality and target
};

/// `quality,speed=1.5,memory=0.6,target,cost=0.1`. Throws InvalidArgument for anything else.
MANTISSA_API std::vector<Gate> parse_gates(const std::string& text);

MANTISSA_API std::string to_string(const Gate& gate);

struct GateResult {
  std::string gate;
  std::string arm;
  bool is_met = false;
  std::string measured;  // one line
};

/// Each gate for each arm but the reference.
MANTISSA_API std::vector<GateResult> judge(const std::vector<Gate>& gates, const Study& study);

/// `gate speed=1.5: bf16: not met: ...`, a line each.
MANTISSA_API std::string gates_text(const std::vector<GateResult>& results);

}  // namespace mantissa::report
