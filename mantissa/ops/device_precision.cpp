#include "mantissa/ops/device_precision.h"

#include <ATen/Context.h>

namespace mantissa::ops {
namespace {

[[maybe_unused]] bool is_reduced(bool allowed) { return allowed; }

// LibTorch 2.10 and later tell more than a bool.
template <typename Option>
bool is_reduced(Option option) {
  return option == Option::AllowReducedPrecisionWithSplitK;
}

}  // namespace

DevicePrecision device_precision() {
  const at::Context& context = at::globalContext();
  return {context.allowTF32CuBLAS() || context.allowTF32CuDNN(),
          is_reduced(context.allowBF16ReductionCuBLAS()) ||
              is_reduced(context.allowFP16ReductionCuBLAS()) ||
              context.allowFP16AccumulationCuBLAS()};
}

void set_device_precision(const DevicePrecision& precision) {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(precision.tf32);
  context.setAllowTF32CuDNN(precision.tf32);
  context.setAllowBF16ReductionCuBLAS(precision.reduced_sums);
  context.setAllowFP16ReductionCuBLAS(precision.reduced_sums);
  context.setAllowFP16AccumulationCuBLAS(false);  // whole sums in FP16 are never right
}

DevicePrecisionGuard::DevicePrecisionGuard(const DevicePrecision& precision)
    : before_(device_precision()) {
  set_device_precision(precision);
}

DevicePrecisionGuard::~DevicePrecisionGuard() { set_device_precision(before_); }

}  // namespace mantissa::ops
