#pragma once

#include <string_view>

namespace mantissa::cli {

/// What every command that trains or evaluates does first, before any tensor: our CPU kernels are
/// installed and the counting allocator put under LibTorch.
void prepare_process();

/// Says on stderr when this CPU has no units for products of that precision, so that nobody waits
/// for a speed that does not come. After prepare_process().
void tell_of_missing_units(std::string_view precision);

}  // namespace mantissa::cli
