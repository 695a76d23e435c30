#include "mantissa/train/machine.h"

#include <fstream>

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

namespace mantissa::train {

std::string cpu_description() {
  std::string model = "unknown processor";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  return model + ", " + at::get_cpu_capability();
}

std::map<std::string, std::string> environment() {
  return {{"mantissa", MANTISSA_VERSION},
          {"libtorch", TORCH_VERSION},
          {"cpu", cpu_description()},
          {"threads", std::to_string(at::get_num_threads())}};
}

}  // namespace mantissa::train
