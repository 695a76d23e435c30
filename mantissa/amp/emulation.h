#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"

namespace mantissa::amp {

/// While it lives, autocast regions of this thread emulate a format in FP32 storage: where a policy
/// casts to its 16-bit compute format, values are rounded to `format` instead, to nearest even,
/// overflow to infinity (NaN in fp8_e4m3), and stay FP32. So a format can be tried that the device
/// lacks, or that no kernel knows, on any device.
///
/// What is emulated, exactly: an operation with rule `lower` gets inputs rounded to the format,
/// computes in FP32 with FP32 sums, and its results are rounded once; those of `lower_output` are
/// rounded likewise. In backward the gradients of what was rounded are rounded too: those that
/// arrive at an operation, and those that it returns. That is what a kernel of the format does
/// which sums in FP32; it differs from one by the order of sums alone, and for fp16 and bf16 not
/// even by that where FP32 products are ours (ops::Tf32Guard, whose rounding leaves such numbers as
/// they are). What a policy does not list runs in FP32 on rounded values and is not rounded again,
/// where in the format itself it would be: sums of results, activations outside of products. Scopes
/// and operations that the policy keeps in FP32 are not touched.
///
///     const amp::Emulation emulation(numerics::Format::fp8_e5m2);
///     const amp::Autocast region(amp::find_policy("torch-fixed compute=bf16"));
///
/// The innermost one holds. Of this thread: regions that are entered again elsewhere (RegionState)
/// emulate nothing there.
class MANTISSA_API Emulation {
 public:
  /// Throws InvalidArgument for formats other than bf16, fp16, fp8_e4m3 and fp8_e5m2.
  explicit Emulation(numerics::Format format);
  ~Emulation();

  Emulation(const Emulation&) = delete;
  Emulation& operator=(const Emulation&) = delete;

 private:
  std::optional<numerics::Format> outer_;
};

/// Of this thread; nothing outside of any.
MANTISSA_API std::optional<numerics::Format> emulated_format();

/// `tensor` with every number rounded to `format`, in FP32; its gradient is rounded likewise.
/// `mantissa::round_to` for those who trace.
MANTISSA_API at::Tensor round_to(const at::Tensor& tensor, numerics::Format format);

}  // namespace mantissa::amp
