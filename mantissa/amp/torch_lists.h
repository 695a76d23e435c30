#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/amp/op_rules.h"
#include "mantissa/base/api.h"

namespace mantissa::amp {

enum class TorchList : uint8_t { cuda, cpu };

/// The lists were read from LibTorch 2.11 to 2.15, the versions that mantissa supports.
inline constexpr int kFirstListedMinor = 11;
inline constexpr int kLastListedMinor = 15;

/// Each overload (`mm`, `softmax.int`) that autocast of LibTorch 2.`minor_version` casts on that
/// device, with its category as a rule. Throws Unsupported for a version that is not listed.
/// tools/renew_torch_lists prints what has changed in another version.
MANTISSA_API std::vector<OpRule> torch_list(TorchList list, int minor_version);

}  // namespace mantissa::amp
