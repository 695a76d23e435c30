#include "mantissa/tensor/state_dict.h"

#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::tensor {
namespace {

StateDict example() {
  StateDict state;
  state.set("weight", at::arange(4, at::kFloat));
  state.set("steps", int64_t{7});
  state.set("scale", 0.1);
  state.set("kind", std::string("adamw"));
  return state;
}

TEST(StateDict, MergeAndUnderAreInverse) {
  StateDict whole;
  whole.merge("a", example());
  whole.merge("ab", example());
  const StateDict part = whole.under("a");
  EXPECT_EQ(part.tensors().size(), 1U);
  EXPECT_TRUE(at::equal(part.tensor("weight"), at::arange(4, at::kFloat)));
  EXPECT_EQ(part.integer("steps"), 7);
  EXPECT_EQ(part.real("scale"), 0.1);
  EXPECT_EQ(part.text("kind"), "adamw");
}

TEST(StateDict, SharesTensorsInsteadOfCopying) {
  const at::Tensor weight = at::ones({2});
  StateDict state;
  state.set("weight", weight);
  EXPECT_EQ(state.tensor("weight").data_ptr(), weight.data_ptr());
}

TEST(StateDict, RefusesANameTwice) {
  StateDict state = example();
  EXPECT_THROW(state.set("weight", int64_t{1}), InvalidArgument);
}

TEST(StateDict, MissingAndWrongTypeAreNamed) {
  const StateDict state = example();
  try {
    (void)state.integer("scale");
    FAIL() << "expected Corruption";
  } catch (const Corruption& error) {
    EXPECT_STREQ(error.what(),
                 "state: entry \"scale\" is not an integer; the checkpoint is of another version");
  }
  EXPECT_THROW((void)state.tensor("bias"), Corruption);
}

TEST(StateDict, CopyToNeverCasts) {
  const StateDict state = example();
  const at::Tensor target = at::zeros({4});
  state.copy_to("weight", target);
  EXPECT_TRUE(at::equal(target, at::arange(4, at::kFloat)));
  EXPECT_THROW(state.copy_to("weight", at::zeros({4}, at::kBFloat16)), Corruption);
  EXPECT_THROW(state.copy_to("weight", at::zeros({2, 2})), Corruption);
}

// Neither to fewer bits nor to more, where the bits that an earlier cast has lost stay lost.
TEST(StateDict, CopyToRefusesEveryOtherDtypeAndShapeAndWritesNothing) {
  for (const at::ScalarType saved :
       {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong, at::kByte}) {
    StateDict state;
    state.set("moment", at::ones({4}, saved));
    for (const at::ScalarType wanted :
         {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong, at::kByte}) {
      const at::Tensor target = at::zeros({4}, wanted);
      if (wanted == saved) {
        state.copy_to("moment", target);
        EXPECT_TRUE(at::equal(target, at::ones({4}, saved))) << saved;
      } else {
        EXPECT_THROW(state.copy_to("moment", target), Corruption) << saved << " to " << wanted;
        EXPECT_TRUE(at::equal(target, at::zeros({4}, wanted)));
      }
    }
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{}, {1}, {4, 1}, {1, 4}, {0}, {5}}) {
      EXPECT_THROW(state.copy_to("moment", at::zeros(sizes, saved)), Corruption) << sizes.size();
    }
  }
}

}  // namespace
}  // namespace mantissa::tensor
