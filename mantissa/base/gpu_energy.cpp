#include "mantissa/base/gpu_energy.h"

#include <dlfcn.h>

#include "mantissa/base/error.h"

namespace mantissa {
namespace {

constexpr int kSuccess = 0;  // NVML_SUCCESS

std::string last_dl_error() {
  const char* const text = dlerror();
  return text == nullptr ? "it cannot be opened" : text;
}

}  // namespace

// Its functions, as nvml.h of the CUDA toolkit declares them; a device is an opaque pointer there.
struct GpuEnergy::Library {
  std::string path;
  void* file = nullptr;
  bool is_begun = false;
  int (*begin)() = nullptr;
  int (*end)() = nullptr;
  int (*count)(unsigned int* count) = nullptr;
  int (*handle)(unsigned int index, void** device) = nullptr;
  int (*energy)(void* device, unsigned long long* millijoules) = nullptr;
  const char* (*error)(int code) = nullptr;

  explicit Library(const std::string& name)
      : path(name), file(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    MANTISSA_CHECK(file != nullptr, IoError, last_dl_error());
    find("nvmlInit_v2", begin);
    find("nvmlShutdown", end);
    find("nvmlDeviceGetCount_v2", count);
    find("nvmlDeviceGetHandleByIndex_v2", handle);
    find("nvmlDeviceGetTotalEnergyConsumption", energy);
    find("nvmlErrorString", error);
    check(begin(), "nvmlInit_v2");
    is_begun = true;
  }

  ~Library() {
    if (is_begun) {
      end();
    }
    // Its driver may have threads, so the file stays open.
  }

  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <typename Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(file, name));
    MANTISSA_CHECK(function != nullptr, IoError, last_dl_error());
  }

  void check(int code, const std::string& what) const {
    MANTISSA_CHECK(code == kSuccess, IoError, path, ": ", what, ": ", error(code));
  }

  uint64_t read(void* device, size_t index) const {
    unsigned long long millijoules = 0;
    check(energy(device, &millijoules),
          concat("GPU ", index, ": nvmlDeviceGetTotalEnergyConsumption"));
    return millijoules;
  }
};

GpuEnergy::GpuEnergy(const std::string& library) {
  try {
    library_ = std::make_unique<Library>(library);
    unsigned int count = 0;
    library_->check(library_->count(&count), "nvmlDeviceGetCount_v2");
    MANTISSA_CHECK(count > 0, IoError, library, ": it finds no GPU");
    for (unsigned int i = 0; i < count; ++i) {
      Gpu gpu;
      library_->check(library_->handle(i, &gpu.handle), "nvmlDeviceGetHandleByIndex_v2");
      gpu.last_mj = library_->read(gpu.handle, i);
      gpus_.push_back(gpu);
    }
  } catch (const IoError& error) {
    end(error.what());
  }
}

GpuEnergy::~GpuEnergy() = default;

double GpuEnergy::sample() {
  try {
    double joules = 0;
    for (size_t i = 0; i < gpus_.size(); ++i) {
      const uint64_t now = library_->read(gpus_[i].handle, i);
      MANTISSA_CHECK(now >= gpus_[i].last_mj, IoError, library_->path, ": GPU ", i,
                     ": its counter went back from ", gpus_[i].last_mj, " to ", now, " mJ");
      joules += static_cast<double>(now - gpus_[i].last_mj) * 1e-3;
      gpus_[i].last_mj = now;
    }
    joules_ += joules;
  } catch (const IoError& error) {
    end(error.what());
  }
  return joules_;
}

void GpuEnergy::end(const std::string& problem) {
  problem_ = problem;
  gpus_.clear();
}

}  // namespace mantissa
