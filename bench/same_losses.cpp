#include "bench/same_losses.h"

#include <cmath>

#include "mantissa/base/error.h"

namespace mantissa::bench {

void require_same_losses(const Step& ours, const Step& peer, int steps, double tolerance) {
  for (int i = 1; i <= steps; ++i) {
    const double ours_loss = ours();
    const double peer_loss = peer();
    MANTISSA_CHECK(std::fabs(ours_loss - peer_loss) <= tolerance * std::fabs(peer_loss), Error,
                   "the loss of step ", i, " is ", ours_loss, ", the peer's is ", peer_loss,
                   "; they do not compute the same");
  }
}

}  // namespace mantissa::bench
