#pragma once

namespace mantissa::cli {

/// What every command that trains or evaluates does first, before any tensor: our CPU kernels are
/// installed and the counting allocator put under LibTorch.
void prepare_process();

}  // namespace mantissa::cli
