#include "mantissa/ops/install_cpu_kernels.h"

#include <array>
#include <atomic>
#include <mutex>

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <torch/library.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
#include "mantissa/ops/attention.h"
#include "mantissa/ops/compute_path.h"
#include "mantissa/ops/convolution.h"
#include "mantissa/ops/matmul.h"

namespace mantissa::ops {
namespace {

using numerics::Format;

constexpr std::array kCpuKernels = {CpuKernels::automatic, CpuKernels::ours, CpuKernels::stock};

std::atomic<bool> installed = false;
std::atomic<CpuKernels> chosen = CpuKernels::automatic;

// Replacing kernels is the purpose here, so LibTorch's warning about it would only alarm.
struct SilentWarnings final : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

const CpuKernelChoice& automatic_choice(Format format, CpuWork work) {
  static const auto choices = [] {
    const CpuFeatures features = detect_cpu_features();
    std::array<std::array<CpuKernelChoice, kCpuWorks.size()>, 2> table;
    for (CpuWork each : kCpuWorks) {
      const auto column = static_cast<size_t>(each);
      table[0][column] = choose_cpu_kernels(Format::bf16, features, each);
      table[1][column] = choose_cpu_kernels(Format::fp16, features, each);
    }
    return table;
  }();
  return choices[format == Format::bf16 ? 0 : 1][static_cast<size_t>(work)];
}

}  // namespace

std::string_view to_string(CpuKernels kernels) {
  switch (kernels) {
    case CpuKernels::automatic:
      return "automatic";
    case CpuKernels::ours:
      return "ours";
    case CpuKernels::stock:
      return "stock";
  }
  MANTISSA_ASSERT(false);
}

std::string_view to_string(CpuWork work) {
  switch (work) {
    case CpuWork::products:
      return "products";
    case CpuWork::small_products:
      return "small products";
    case CpuWork::attention:
      return "attention";
    case CpuWork::depthwise:
      return "depthwise";
  }
  MANTISSA_ASSERT(false);
}

CpuKernels parse_cpu_kernels(std::string_view name) {
  std::vector<std::string> names;
  for (CpuKernels kernels : kCpuKernels) {
    if (to_string(kernels) == name) {
      return kernels;
    }
    names.emplace_back(to_string(kernels));
  }
  throw InvalidArgument(concat("cpu kernels: unknown \"", name, "\"", suggestion(name, names)));
}

void install_cpu_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    SilentWarnings silent;
    const c10::WarningUtils::WarningHandlerGuard guard(&silent);
    // Never deleted: taking kernels away while other threads call them would crash.
    static auto* library =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    register_matmul(*library);
    register_convolution(*library);
    register_attention(*library);
    installed.store(true);
  });
}

bool cpu_kernels_installed() { return installed.load(); }

void set_cpu_kernels(CpuKernels kernels) { chosen.store(kernels); }

CpuKernels cpu_kernels() { return chosen.load(); }

bool widens(Format format, CpuWork work) {
  const CpuKernels kernels = cpu_kernels();
  return (kernels == CpuKernels::automatic ? automatic_choice(format, work).kernels : kernels) ==
         CpuKernels::ours;
}

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
  features.onednn = at::globalContext().hasMKLDNN() && at::globalContext().userEnabledMkldnn();
#if defined(__x86_64__)
  features.avx512_bf16 = __builtin_cpu_supports("avx512bf16") != 0;
  features.avx512_fp16 = __builtin_cpu_supports("avx512fp16") != 0;
  features.amx_bf16 = __builtin_cpu_supports("amx-bf16") != 0;
  // g++ 12 has no name for AMX_FP16: CPUID leaf 7, subleaf 1, EAX bit 21.
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  features.amx_fp16 = __builtin_cpu_supports("amx-tile") != 0 &&
                      __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
                      (eax & (1U << 21U)) != 0;
#endif
  return features;
}

CpuKernelChoice choose_cpu_kernels(Format format, const CpuFeatures& features, CpuWork work) {
  MANTISSA_CHECK(format == Format::bf16 || format == Format::fp16, InvalidArgument,
                 "choose_cpu_kernels: format is ", numerics::to_string(format),
                 "; valid: bf16 fp16");
  const bool is_bf16 = format == Format::bf16;
  const bool amx = is_bf16 ? features.amx_bf16 : features.amx_fp16;
  const bool avx512 = is_bf16 ? features.avx512_bf16 : features.avx512_fp16;
  const std::string units = is_bf16 ? "BF16" : "FP16";
  if (!amx && !avx512) {
    return {format, CpuKernels::ours,
            concat("this CPU has no ", units, " units (AVX512_", units, ", AMX_", units,
                   "); operands are widened to FP32")};
  }
  const std::string unit = (amx ? "AMX_" : "AVX512_") + units;
  if (!features.onednn) {
    return {format, CpuKernels::ours,
            concat("this CPU has ", unit, ", but LibTorch's oneDNN is absent or disabled; ",
                   "operands are widened to FP32")};
  }
  switch (work) {
    case CpuWork::products:
      return {format, CpuKernels::stock,
              concat("this CPU has ", unit, "; LibTorch's oneDNN uses it")};
    case CpuWork::small_products:
      return {format, CpuKernels::ours, "a call of LibTorch's takes longer"};
    case CpuWork::attention:
      if (amx) {
        return {format, CpuKernels::stock, concat("this CPU has ", unit, "; LibTorch uses it")};
      }
      return {format, CpuKernels::ours, concat("faster than LibTorch's with ", unit)};
    case CpuWork::depthwise:
      return {format, CpuKernels::ours, "bound by memory, which LibTorch's are far from"};
  }
  MANTISSA_ASSERT(false);
}

std::vector<CpuKernelChoice> cpu_kernel_choices(CpuWork work) {
  std::vector<CpuKernelChoice> choices;
  for (Format format : {Format::bf16, Format::fp16}) {
    if (!cpu_kernels_installed()) {
      choices.push_back({format, CpuKernels::stock, "the CPU kernels are not installed"});
    } else if (cpu_kernels() == CpuKernels::automatic) {
      choices.push_back(automatic_choice(format, work));
    } else {
      choices.push_back(
          {format, cpu_kernels(), concat("set to \"", to_string(cpu_kernels()), "\"")});
    }
  }
  return choices;
}

}  // namespace mantissa::ops
