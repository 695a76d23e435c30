#include "mantissa/ops/ema.h"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/ops/simd_target_testing.h"

namespace mantissa::ops {
namespace {

using at::Tensor;

// Every way to keep the FP32 weight: FP32, with a model beside it, split, compensated, rounded.
std::vector<WeightUpdate> weights(int64_t length) {
  std::vector<WeightUpdate> result(5);
  const Tensor values = at::randn({length});
  result[0].master = values;
  result[1].master = values;
  result[1].model = values.to(at::kHalf);
  result[2].model = values.to(at::kBFloat16);
  result[2].rest = at::randint(-30000, 30000, {length}, at::kShort);
  result[3].model = values.to(at::kHalf);
  result[3].rest = at::randn({length}).mul(1e-4).to(at::kHalf);
  result[4].model = values.to(at::kBFloat16);
  return result;
}

TEST(Ema, IsBitForBitTheReferenceForEveryNumberOfThreadsAndInstructionSet) {
  on_every_simd_target([] {
    const int before = at::get_num_threads();
    at::manual_seed(61);
    for (const int64_t length : {0, 1, 1023, 1025, 33001}) {
      for (const WeightUpdate& weight : weights(length)) {
        const Tensor start = at::randn({length});
        const Tensor fast = start.clone();
        const Tensor three = start.clone();
        const Tensor slow = start.clone();
        ema_({{weight, fast}}, 0.99);
        at::set_num_threads(3);
        ema_({{weight, three}}, 0.99);
        at::set_num_threads(before);
        ema_reference_({{weight, slow}}, 0.99);
        EXPECT_TRUE(at::equal(fast, slow));
        EXPECT_TRUE(at::equal(three, slow));
        EXPECT_TRUE(length == 0 || !at::equal(fast, start));
      }
    }
  });
}

TEST(Ema, TheWeightIsAFixedPoint) {
  at::manual_seed(62);
  WeightUpdate weight;
  weight.master = at::randn({5000});
  const Tensor shadow = weight.master.clone();
  for (int step = 0; step < 100; ++step) {
    ema_({{weight, shadow}}, 0.999);
  }
  EXPECT_TRUE(at::equal(shadow, weight.master));
}

TEST(Ema, NamesAShadowThatDoesNotFit) {
  WeightUpdate weight;
  weight.model = at::ones({4}, at::kBFloat16);
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              ema_({{weight, at::ones({4}, at::kBFloat16)}}, 0.9);
            }),
            "ema_: parameter 0: the shadow does not fit the weight; make it with "
            "weights_of(weight)");
}

}  // namespace
}  // namespace mantissa::ops
