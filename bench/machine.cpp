#include "bench/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Version.h>
#include <hwy/targets.h>
#include <torch/version.h>

#include "mantissa/numerics/convert.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/train/machine.h"

namespace mantissa::bench {
namespace {

bool is_held_to_avx2 = false;

// What a shell command prints; empty when it fails.
std::string output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) {
    return "";
  }
  std::string text;
  std::array<char, 256> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) {
    text += buffer.data();
  }
  return pclose(pipe) == 0 ? text.substr(0, text.find_last_not_of('\n') + 1) : "";
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
#if defined(__x86_64__)
  const auto add = [&](const char* name, bool has) {
    if (has) {
      names.emplace_back(name);
    }
  };
  const ops::CpuFeatures features = ops::detect_cpu_features();
  add("AVX2", __builtin_cpu_supports("avx2") != 0);
  add("FMA", __builtin_cpu_supports("fma") != 0);
  add("AVX-512", __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0);
  add("AVX512_BF16", features.avx512_bf16);
  add("AVX512_FP16", features.avx512_fp16);
  add("AMX_BF16", features.amx_bf16);
  add("AMX_FP16", features.amx_fp16);
#endif
  return names;
}

// "Intel(R) MKL-DNN v3.7.1 (Git Hash ...)"
std::string first_words(const std::string& text) { return text.substr(0, text.find(" (Git")); }

}  // namespace

void hold_to_avx2() {
  setenv("ATEN_CPU_CAPABILITY", "avx2", /*replace=*/1);
  setenv("MKL_ENABLE_INSTRUCTIONS", "AVX2", 1);
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
#if defined(__x86_64__)
  hwy::DisableTargets(HWY_AVX2 - 1);  // better targets have lower bits
#endif
  ops::set_cpu_kernels(ops::CpuKernels::ours);  // as `automatic` is without 16-bit units
  is_held_to_avx2 = true;
}

CpuClass cpu_class() {
#if defined(__x86_64__)
  if (!is_held_to_avx2 && ops::detect_cpu_features().avx512_bf16) {
    return CpuClass::avx512_bf16;
  }
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
    return CpuClass::avx2;
  }
#endif
  return CpuClass::other;
}

nlohmann::json describe_machine() {
  const std::string git = "git -C '" MANTISSA_SOURCE_DIR "' ";
  const std::string commit = output_of(git + "rev-parse HEAD");
  return {{"cpu", train::cpu_description()},
          {"cores", std::thread::hardware_concurrency()},
          {"instruction_sets", instruction_sets()},
          {"held_to_avx2", is_held_to_avx2},
          {"simd_target", numerics::simd_target()},
          {"class", to_string(cpu_class())},
          {"mantissa", MANTISSA_VERSION},
          {"commits", nlohmann::json::array({commit.empty() ? "unknown" : commit})},
          {"dirty", commit.empty() || !output_of(git + "status --porcelain").empty()},
          {"libtorch", TORCH_VERSION},
          {"mkl", at::get_mkl_version()},
          {"onednn", first_words(at::get_mkldnn_version())},
          {"compiler", "g++ " __VERSION__}};
}

CpuWatch::CpuWatch() : start_(read()) {}

std::optional<CpuWatch::Times> CpuWatch::read() {
  std::ifstream stat("/proc/stat");
  std::string name;
  std::array<double, 8> ticks{};  // user nice system idle iowait irq softirq steal
  stat >> name;
  for (double& value : ticks) {
    stat >> value;
  }
  if (!stat || name != "cpu") {
    return std::nullopt;
  }
  Times times;
  for (double value : ticks) {
    times.all_s += value / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  times.idle_s = (ticks[3] + ticks[4]) / static_cast<double>(sysconf(_SC_CLK_TCK));
  for (int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      times.own_s += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    }
  }
  return times;
}

std::optional<double> CpuWatch::share_of_others() const {
  const std::optional<Times> end = read();
  if (!start_ || !end || end->all_s <= start_->all_s) {
    return std::nullopt;
  }
  const double all = end->all_s - start_->all_s;
  const double used = all - (end->idle_s - start_->idle_s) - (end->own_s - start_->own_s);
  return std::clamp(used / all, 0.0, 1.0);
}

}  // namespace mantissa::bench
