#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"

namespace mantissa::ops {

/// Who computes 16-bit products, convolutions and attention on the CPU. `automatic` leaves to
/// LibTorch what is faster there because the CPU has native units for the format; see CpuWork.
enum class CpuKernels : uint8_t { automatic, ours, stock };

/// What native units change, and what they do not.
enum class CpuWork : uint8_t {
  products,        // and dense convolutions: LibTorch's with any native unit
  small_products,  // of at most 2^21 multiplications: ours always, calls are their limit
  attention,       // LibTorch's with AMX units
  depthwise,       // convolutions of one channel a group: ours always, memory is their limit
};

MANTISSA_API std::string_view to_string(CpuKernels kernels);

/// Throws InvalidArgument with the nearest valid name.
MANTISSA_API CpuKernels parse_cpu_kernels(std::string_view name);

inline constexpr std::array kCpuWorks = {CpuWork::products, CpuWork::small_products,
                                         CpuWork::attention, CpuWork::depthwise};

/// `products`, `small products`, ...
MANTISSA_API std::string_view to_string(CpuWork work);

/// Puts own kernels in front of LibTorch's CPU kernels for the products (mm, addmm, bmm, baddbmm,
/// _addmm_activation, addmv, dot, vdot, addr), convolution and flash attention, forward and
/// backward, for every user of LibTorch in this process. BF16 and FP16 operands are widened to
/// FP32, multiplied and summed in FP32, and the result is rounded once: what a tensor core
/// promises, at the speed of FP32. Other dtypes reach LibTorch's kernels untouched (but see
/// tf32.h).
///
/// Call it before other threads compute: LibTorch's table of operations must not change under
/// them. Calling it again does nothing. It is never undone; `set_cpu_kernels(CpuKernels::stock)`
/// gives the same results as not having called it.
MANTISSA_API void install_cpu_kernels();

MANTISSA_API bool cpu_kernels_installed();

/// Chooses for the whole process, at any time: each operation reads the choice once, at its start.
MANTISSA_API void set_cpu_kernels(CpuKernels kernels);

/// What was set last; `automatic` at first.
MANTISSA_API CpuKernels cpu_kernels();

/// `set_cpu_kernels` until the end of the scope. Not per thread.
class MANTISSA_API CpuKernelsGuard {
 public:
  explicit CpuKernelsGuard(CpuKernels kernels) : before_(cpu_kernels()) {
    set_cpu_kernels(kernels);
  }
  ~CpuKernelsGuard() { set_cpu_kernels(before_); }

  CpuKernelsGuard(const CpuKernelsGuard&) = delete;
  CpuKernelsGuard& operator=(const CpuKernelsGuard&) = delete;

 private:
  CpuKernels before_;
};

/// The units of a CPU that multiply 16-bit numbers.
struct CpuFeatures {
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool amx_bf16 = false;
  bool amx_fp16 = false;
  bool onednn = false;  // LibTorch's library of native 16-bit products is built in and enabled
};

MANTISSA_API CpuFeatures detect_cpu_features();

/// Who computes something in a format, and why, in words.
struct CpuKernelChoice {
  numerics::Format format;
  CpuKernels kernels;  // ours or stock
  std::string reason;
};

/// The choice of `automatic` on a CPU with `features`, for bf16 or fp16.
MANTISSA_API CpuKernelChoice choose_cpu_kernels(numerics::Format format,
                                                const CpuFeatures& features,
                                                CpuWork work = CpuWork::products);

/// What holds for bf16 and fp16 in this process.
MANTISSA_API std::vector<CpuKernelChoice> cpu_kernel_choices(CpuWork work = CpuWork::products);

}  // namespace mantissa::ops
