#include "mantissa/tensor/generator_state.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

namespace mantissa::tensor {
namespace {

TEST(GeneratorState, GoesBackToWhereItWasTaken) {
  const at::Tensor state = cpu_generator_state();
  const at::Tensor first = at::rand({5});
  EXPECT_FALSE(at::equal(at::rand({5}), first));  // and what was taken has not moved on
  set_cpu_generator_state(state);
  EXPECT_TRUE(at::equal(at::rand({5}), first));
}

}  // namespace
}  // namespace mantissa::tensor
