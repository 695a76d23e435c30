#include "mantissa/report/device_time.h"

#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/text_table.h"

namespace mantissa::report {
namespace {

std::string cell(const DeviceTime& time) {
  return concat(time.missing.empty() ? seconds_text(time.bound_s()) : time.missing,
                time.fits() ? "" : ", does not fit");
}

}  // namespace

std::string device_times_text(const Study& study, const std::vector<DeviceTime>& times) {
  std::vector<std::vector<std::string>> rows = {{"a step, at least"}, {"here, measured"}};
  for (const ArmResult& arm : study.arms) {
    rows[0].push_back(arm.arm);
    rows[1].push_back(std::isnan(arm.step_s.value) ? "-" : seconds_text(arm.step_s.value));
  }
  for (const DeviceTime& time : times) {
    if (time.arm == study.arms.front().arm) {
      rows.push_back({time.device});
    }
    rows.back().push_back(cell(time));
  }
  return text_table(rows) +
         "Devices: arithmetic, not measured. Products at the vendor's peak, or memory at full "
         "rate, "
         "whichever is longer;\nno step is faster there, and most are much slower (mantissa "
         "plan).\n";
}

}  // namespace mantissa::report
