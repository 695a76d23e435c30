#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/cli/command.h"
#include "mantissa/numerics/convert.h"
#include "mantissa/ops/device_kernels.h"
#include "mantissa/ops/device_precision.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/report/quantity.h"
#include "mantissa/train/machine.h"

namespace mantissa::cli {
namespace {

int64_t memory_bytes() {
  return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
}

// What LibTorch says; training itself runs on the CPU so far.
std::string cuda_text() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    return "not built in (preset cuda)";
  }
  const auto count = c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->deviceCount();
  return count == 0 ? "built in, no CUDA device: the driver shows none"
                    : std::to_string(static_cast<int>(count)) + " devices";
}

std::string cuda_kernels_text() {
  const bool has_kernels = ops::device_kernels(c10::Device(c10::DeviceType::CUDA, 0)) != nullptr;
  return has_kernels ? MANTISSA_CUDA_ARCHITECTURES : "not built in (preset cuda)";
}

// As a program of ours has it, whatever LibTorch's own setting is.
std::string cuda_products_text() {
  const ops::DevicePrecision precision = ops::device_precision();
  return std::string(precision.tf32 ? "FP32 factors rounded to TF32" : "FP32 factors as they are") +
         (precision.reduced_sums ? ", sums may be rounded to 16 bits" : ", FP32 sums");
}

// Which memory the system backs with huge pages: "always", "never" or, where a program asks for
// them as train.allocator = "caching" does, "madvise".
std::string huge_pages_text() {
  std::ifstream modes("/sys/kernel/mm/transparent_hugepage/enabled");
  for (std::string mode; modes >> mode;) {
    if (mode.starts_with('[') && mode.ends_with(']')) {
      return mode.substr(1, mode.size() - 2);
    }
  }
  return "unknown";
}

void run_doctor(bool as_json) {
  // As the commands that train do, so that the answer is theirs.
  ops::install_cpu_kernels();
  ops::set_device_precision({});
  const auto environment = train::environment();
  if (as_json) {
    nlohmann::ordered_json json(environment);
    json["threads"] = std::stoi(environment.at("threads"));
    json["memory_bytes"] = memory_bytes();
    json["huge_pages"] = huge_pages_text();
    json["cuda"] = cuda_text();
    json["cuda_kernels"] = cuda_kernels_text();
    json["cuda_products"] = cuda_products_text();
    json["conversions"] = std::string(numerics::simd_target());
    for (const ops::CpuWork work : ops::kCpuWorks) {
      for (const ops::CpuKernelChoice& choice : ops::cpu_kernel_choices(work)) {
        json["kernels"][std::string(numerics::to_string(choice.format))]
            [std::string(to_string(work))] = {
                {"chosen", std::string(ops::to_string(choice.kernels))}, {"reason", choice.reason}};
      }
    }
    std::cout << json.dump() << "\n";
    return;
  }
  std::vector<std::pair<std::string, std::string>> lines = {
      {"mantissa", environment.at("mantissa")},
      {"LibTorch", environment.at("libtorch")},
      {"processor", environment.at("cpu")},
      {"threads", environment.at("threads")},
      {"memory", report::bytes_text(memory_bytes())},
      {"huge pages", huge_pages_text()},
      {"CUDA", cuda_text()},
      {"CUDA kernels", cuda_kernels_text()},
      {"CUDA products", cuda_products_text()},
      {"conversions", std::string(numerics::simd_target())}};
  for (const ops::CpuWork work : ops::kCpuWorks) {
    for (const ops::CpuKernelChoice& choice : ops::cpu_kernel_choices(work)) {
      lines.emplace_back(concat(numerics::to_string(choice.format), " ", to_string(work)),
                         concat(ops::to_string(choice.kernels), ": ", choice.reason));
    }
  }
  size_t width = 0;
  for (const auto& [name, value] : lines) {
    width = std::max(width, name.size());
  }
  for (const auto& [name, value] : lines) {
    std::cout << name << std::string(width + 2 - name.size(), ' ') << value << "\n";
  }
}

}  // namespace

void add_doctor(CLI::App& app, int& /*exit_code*/) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("doctor", "Show this machine, and who computes 16-bit products on it");
  command->add_flag("--json", *as_json, "one JSON object, the last line of stdout");
  command->callback([as_json] { run_doctor(*as_json); });
}

}  // namespace mantissa::cli
