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

/// The depth of a region that begins.
int begin_region();

/// Of the region with that depth: the last one drops the cast cache. A region that is not the
/// innermost would leave its policy on for the rest of the thread, and destructors cannot throw:
/// it ends the process with one line.
void end_region(int depth);

}  // namespace mantissa::amp
