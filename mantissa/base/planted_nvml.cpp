// A library with the functions of NVML that base/gpu_energy.cpp calls, over counters in the file
// that the variable PLANTED_NVML names: a line of millijoules a GPU, `none` for one without.
#include <array>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kDriverNotLoaded = 9;

bool is_begun = false;
std::array<size_t, 4> numbers = {0, 1, 2, 3};

std::vector<std::string> counters() {
  const char* const file = std::getenv("PLANTED_NVML");
  std::ifstream in(file == nullptr ? "" : file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int nvmlInit_v2() {
  is_begun = std::getenv("PLANTED_NVML") != nullptr;
  return is_begun ? kSuccess : kDriverNotLoaded;
}

__attribute__((visibility("default"))) int nvmlShutdown() {
  is_begun = false;
  return kSuccess;
}

__attribute__((visibility("default"))) int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = static_cast<unsigned int>(counters().size());
  return is_begun ? kSuccess : kDriverNotLoaded;
}

// A handle is the address of the number of the GPU.
__attribute__((visibility("default"))) int nvmlDeviceGetHandleByIndex_v2(unsigned int index,
                                                                         void** device) {
  *device = &numbers.at(index);
  return is_begun ? kSuccess : kDriverNotLoaded;
}

__attribute__((visibility("default"))) int nvmlDeviceGetTotalEnergyConsumption(
    void* device, unsigned long long* millijoules) {
  const std::string line = counters().at(*static_cast<const size_t*>(device));
  if (line == "none") {
    return kNotSupported;
  }
  *millijoules = std::stoull(line);
  return is_begun ? kSuccess : kDriverNotLoaded;
}

__attribute__((visibility("default"))) const char* nvmlErrorString(int code) {
  return code == kNotSupported ? "Not Supported" : "Driver Not Loaded";
}

}  // extern "C"
