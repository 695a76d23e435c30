#include "mantissa/train/keep.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/log.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::train {
namespace {

using ::testing::ElementsAre;

const char* const kFp16 = "torch compute=fp16";

TEST(Candidates, AreTheOperationsIn16BitsThatTakeARuleAndTheirScopes) {
  const std::vector<Keep> all = candidates([] {
    const amp::Autocast region(amp::find_policy("torch compute=fp16"));
    at::Tensor x = at::ones({2, 64}).requires_grad_();
    for (const char* block : {"blocks.0", "blocks.1"}) {
      const tensor::Scope layer(block);
      {
        const tensor::Scope attention("attention");
        x = at::matmul(at::softmax(at::mm(x, x.t()), -1), x);
      }
      const tensor::Scope mlp("mlp");
      x = at::log(x.mul(2).add_(1).exp());
    }
    x.sum().backward();
  });
  std::vector<Keep> expected;
  for (const std::string block : {"blocks.0", "blocks.1"}) {
    expected.insert(expected.end(), {{block + ".attention", "aten::mm"},
                                     {block + ".attention", "aten::softmax"},
                                     {block + ".attention", "aten::matmul"},
                                     {block + ".mlp", "aten::mul"},
                                     {block + ".mlp", "aten::exp"}});
  }
  for (const std::string block : {"blocks.0", "blocks.1"}) {
    expected.insert(expected.end(), {{block + ".attention", ""}, {block + ".mlp", ""}});
  }
  EXPECT_EQ(all, expected);
}

TEST(Candidates, AStepThatThrowsListsWhatItCalledBefore) {
  const auto step = [] {
    (void)at::ones({2}, at::kHalf).add(1);
    throw std::runtime_error("later");
  };
  EXPECT_THAT(candidates(step), ElementsAre(Keep{"", "aten::add"}));
  EXPECT_THROW((void)candidates([] { throw std::runtime_error("at once"); }), std::runtime_error);
}

TEST(Keep, IsAnEntryOfAPolicy) {
  const amp::Policy policy = amp::find_policy("torch-fixed compute=fp16 mm@a=keep mm.default=keep");
  EXPECT_EQ(to_string(with_kept(policy, {{"", "mm"}})), "torch-fixed compute=fp16 mm=fp32");
  EXPECT_EQ(to_string(with_kept(amp::find_policy(kFp16), {{"head", ""}, {"a.*", "exp"}})),
            "torch compute=fp16 exp@a.*=fp32 scope:head=fp32");
  EXPECT_EQ(to_string(with_kept(amp::find_policy("torch compute=fp16 param=fp16"), {{"", ""}})),
            "torch compute=fp32");
}

TEST(Keep, ReadsAsWords) {
  EXPECT_EQ(to_string(Keep{"head", "aten::mm"}), "aten::mm in head");
  EXPECT_EQ(to_string(Keep{"head", ""}), "all of head");
  EXPECT_EQ(to_string(Keep{"", "aten::mm"}), "aten::mm");
  EXPECT_EQ(to_string(Keep{}), "everything");
}

}  // namespace
}  // namespace mantissa::train
