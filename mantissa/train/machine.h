#pragma once

#include <map>
#include <string>

#include "mantissa/base/api.h"

namespace mantissa::train {

/// The processor's model name and the instruction set that LibTorch uses on it.
MANTISSA_API std::string cpu_description();

/// What a bit-equal resume depends on: versions of mantissa and LibTorch, instruction set, threads.
MANTISSA_API std::map<std::string, std::string> environment();

}  // namespace mantissa::train
