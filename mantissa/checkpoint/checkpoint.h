#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/tensor/state_dict.h"

namespace mantissa::checkpoint {

/// What a bit-equal continuation depends on besides the state: versions of libraries, the CPU's
/// capability, the number of threads, as `name: value`.
using Environment = std::map<std::string, std::string>;

/// The whole of a run after `step` steps.
struct Checkpoint {
  int64_t step = 0;
  tensor::StateDict state;
  Environment environment;
};

/// One line for each name that was added, has gone or changed; empty when a continuation can be
/// bit-equal.
MANTISSA_API std::vector<std::string> differences(const Environment& saved,
                                                  const Environment& current);

}  // namespace mantissa::checkpoint
