#include "mantissa/cli/device_times.h"

#include "mantissa/numerics/format.h"
#include "mantissa/train/footprint.h"
#include "mantissa/train/plan.h"

namespace mantissa::cli {

std::vector<report::DeviceTime> device_times(const std::vector<Arm>& arms,
                                             const std::vector<train::DeviceSpec>& devices) {
  if (devices.empty()) {
    return {};
  }
  std::vector<train::Footprint> footprints;
  footprints.reserve(arms.size());
  for (const Arm& arm : arms) {
    footprints.push_back(train::footprint(arm.config));
  }
  std::vector<report::DeviceTime> times;
  for (const train::DeviceSpec& device : devices) {
    for (size_t i = 0; i < arms.size(); ++i) {
      const numerics::Format compute = numerics::parse_format(arms[i].config.precision.compute);
      const train::StepTime step = train::step_time(footprints[i], {}, compute, device);
      times.push_back({device.name, arms[i].name, step.products_s, step.memory_s, step.missing,
                       train::rank_bytes(footprints[i], {}).total(),
                       static_cast<int64_t>(device.memory.value)});
    }
  }
  return times;
}

}  // namespace mantissa::cli
