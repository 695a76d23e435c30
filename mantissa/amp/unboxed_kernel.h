#pragma once

#include <memory>
#include <optional>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "mantissa/amp/autocast_kernel.h"

namespace mantissa::amp {

/// What AutocastKernel does, for the operations that models call most, without boxing their
/// arguments: that is half of what autocast costs a call. Rules other than keep, lower, fp32,
/// widest and fp32_output, and policies with formats for parameters, go through `general`. Nothing
/// for other operations.
std::optional<c10::KernelFunction> unboxed_kernel(const c10::OperatorHandle& operation,
                                                  size_t number, const AutocastKernel& general);

}  // namespace mantissa::amp
