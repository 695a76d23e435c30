#pragma once

#include <string>
#include <vector>

#include "case.h"
#include "truth.h"

namespace mantissa::nan_benchmark {

/// What was said of a case, and whether it is the truth.
struct Score {
  Truth truth;
  std::string failure;  // why the case itself is not what it claims; empty: it is
  std::string named;    // `aten::log in loss.nll, forward`
  bool is_exact = false;
  std::string cure;         // what was recommended
  bool is_cured = false;    // it cures or, of what precision does not cure, says so
  bool is_minimal = false;  // it keeps no more operations in FP32 than needed
  std::string alarm;        // on the twin; empty: none
  double plain_s = 0;       // a healthy step
  double traced_s = 0;      // and one that is looked at

  bool is_curable() const { return !truth.cure.empty(); }
};

Score score(const Case& given, const Truth& truth);

struct Totals {
  int64_t cases = 0;
  int64_t exact = 0;
  int64_t curable = 0;
  int64_t cured = 0;  // of the curable
  int64_t incurable = 0;
  int64_t said_so = 0;  // of the incurable
  int64_t minimal = 0;  // of those that FP32 for some operations cures
  int64_t curable_by_keep = 0;
  int64_t alarms = 0;
  int64_t failures = 0;
};

Totals totals(const std::vector<Score>& scores);

/// The bars, as a line each that says what is below its bar; none: all are met.
std::vector<std::string> missed_bars(const Totals& totals);

}  // namespace mantissa::nan_benchmark
