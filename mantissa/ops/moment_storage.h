#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/ops/cpu/optimizer_passes.h"
#include "mantissa/ops/moment.h"
#include "mantissa/ops/place.h"

namespace mantissa::ops {

/// Throws InvalidArgument unless it fits a weight with the sizes, strides and device of `pattern`;
/// `where` begins the message.
void check_moment(const Moment& moment, const at::Tensor& pattern, const Place& where);

/// Pointers into a checked moment; of an undefined one, null.
cpu::MomentView moment_view(const Moment& moment, CodeMap map);

/// Element by element, in the order of memory: what the passes over moments are tested against.
MANTISSA_API std::vector<float> moments_reference(const Moment& moment, CodeMap map);
void store_moments_reference(const Moment& moment, CodeMap map, const std::vector<float>& values);

}  // namespace mantissa::ops
