#pragma once

#include <functional>

namespace mantissa::bench {

/// Takes one training step and returns the loss before it.
using Step = std::function<double()>;

/// Takes `steps` of each and throws Error unless the losses agree within `tolerance`, relative:
/// what does not compute the same is not compared.
void require_same_losses(const Step& ours, const Step& peer, int steps, double tolerance);

}  // namespace mantissa::bench
