#pragma once

#include "mantissa/amp/compiled_policy.h"

namespace mantissa::amp {

class ParameterFormats;

/// Of this thread.
struct ActiveRegion {
  const CompiledPolicy* policy = nullptr;     // null outside of regions and in a disabled one
  const ParameterFormats* formats = nullptr;  // null where the policy has no entries for parameters
  int depth = 0;                              // of nested regions
};

ActiveRegion& active_region();

}  // namespace mantissa::amp
