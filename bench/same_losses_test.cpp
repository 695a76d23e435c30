#include "bench/same_losses.h"

#include <vector>

#include <gmock/gmock.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::bench {
namespace {

Step steps_of(std::vector<double> losses) {
  return [losses = std::move(losses), i = size_t{0}]() mutable { return losses.at(i++); };
}

TEST(SameLosses, WithinTheTolerance) {
  require_same_losses(steps_of({2.001, 4}), steps_of({2, 4.001}), 2, 1e-3);
}

TEST(SameLosses, RefusesAnyStepThatDiffers) {
  EXPECT_EQ(message_of<Error>([] {
              require_same_losses(steps_of({2, 4.5}), steps_of({2, 4}), 2, 1e-3);
            }),
            "the loss of step 2 is 4.5, the peer's is 4; they do not compute the same");
}

TEST(SameLosses, RefusesWhatIsNoNumber) {
  EXPECT_THROW(require_same_losses(steps_of({NAN}), steps_of({NAN}), 1, 1), Error);
}

}  // namespace
}  // namespace mantissa::bench
