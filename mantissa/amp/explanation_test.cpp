#include "mantissa/amp/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::amp {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

Explanation one(const std::string& policy, const std::string& operation,
                const std::vector<std::string>& formats, const std::string& scope = "") {
  const auto all = explain(find_policy(policy), operation, formats, scope);
  EXPECT_THAT(all, SizeIs(1));
  return all.at(0);
}

TEST(Explain, SaysWhatIsCastAndWhy) {
  const Explanation mm = one("torch", "mm.default", {"fp32", "bf16"});
  EXPECT_EQ(mm.operation, "aten::mm");
  EXPECT_EQ(mm.rule, Rule::lower);
  EXPECT_THAT(mm.source, HasSubstr("for CUDA"));
  EXPECT_EQ(mm.arguments[0].name, "self");
  EXPECT_EQ(mm.arguments[0].to, "bf16");
  EXPECT_EQ(mm.arguments[1].to, "bf16");
  EXPECT_EQ(mm.outcome, "runs in bf16");
}

TEST(Explain, AnOperationOfMantissasOwnFollowsLinear) {
  const Explanation loss = one("torch-fixed", "mantissa::linear_cross_entropy", {"fp32", "fp32"});
  EXPECT_EQ(loss.operation, "mantissa::linear_cross_entropy");
  EXPECT_EQ(loss.rule, Rule::lower);
  EXPECT_EQ(loss.source, "as linear, " + one("torch-fixed", "linear.default", {"fp32"}).source);
  EXPECT_EQ(loss.arguments[0].name, "input");
  EXPECT_EQ(loss.arguments[1].to, "bf16");
  EXPECT_EQ(loss.outcome, "runs in bf16");
}

TEST(Explain, NamesTheEntryThatDecided) {
  EXPECT_EQ(one("torch mm=fp32", "mm.default", {"bf16", "bf16"}).source, "mm=fp32");
  EXPECT_EQ(one("torch-fixed", "fft_rfft", {"bf16"}).source, "fft=fp32");
  EXPECT_EQ(one("lean", "softmax.int", {"bf16"}).source, "base lean");
  EXPECT_EQ(one("torch", "relu", {"bf16"}).source, "not listed");
}

TEST(Explain, DoubleAndIntegersStay) {
  const Explanation mm = one("torch", "mm.default", {"fp64", "fp32"});
  EXPECT_EQ(mm.arguments[0].to, "fp64");
  EXPECT_EQ(mm.arguments[1].to, "bf16");
}

TEST(Explain, SaysWhenTheCastsLeaveFormatsMixed) {
  EXPECT_THAT(one("torch", "mm.default", {"fp64", "bf16"}).note,
              HasSubstr("LibTorch computes mixed formats in some operations and refuses them in"));
  EXPECT_THAT(one("torch", "maximum", {"fp32", "bf16"}).note, HasSubstr("these formats differ"));
  EXPECT_EQ(one("torch", "mm.default", {"fp32", "bf16"}).note, "");
  EXPECT_EQ(one("torch", "mm.default", {"fp64", "fp64"}).note, "");
  EXPECT_EQ(one("torch", "mm.default", {"int", "bf16"}).note, "") << "only floating ones";
  EXPECT_EQ(one("torch", "dot", {"fp16", "fp32"}).note, "") << "throws already";
}

TEST(Explain, KnowsScopesAndForeignFormats) {
  EXPECT_EQ(one("torch scope:filter=fp32", "mm.default", {"bf16", "bf16"}, "filter.mlp").outcome,
            "runs in fp32");
  EXPECT_THAT(one("torch", "dot", {"fp16", "fp16"}).outcome, HasSubstr("throws"));
  EXPECT_EQ(one("torch-fixed", "dot", {"fp16", "fp16"}).outcome, "runs in fp16");
  EXPECT_EQ(one("torch-fixed", "dot", {"fp16", "bf16"}).outcome, "runs in fp32");
}

TEST(Explain, KnowsARuleThatHoldsInAScope) {
  const std::string policy = "torch mm@filter=fp32";
  EXPECT_EQ(one(policy, "mm.default", {"bf16", "bf16"}, "filter.mlp").source, "mm@filter=fp32");
  EXPECT_EQ(one(policy, "mm.default", {"bf16", "bf16"}, "head").outcome, "runs in bf16");
}

TEST(Explain, TheOverloadWithoutANameComesFirst) {
  const auto all = explain(find_policy("torch"), "sum", {"bf16"});
  EXPECT_GT(all.size(), 1U);
  EXPECT_EQ(all[0].operation, "aten::sum");
}

TEST(Explain, RefusesWhatIsUnknown) {
  EXPECT_THAT(message_of<InvalidArgument>([] { explain(find_policy("torch"), "mn", {"fp32"}); }),
              HasSubstr("unknown operation \"mn\""));
  EXPECT_THAT(
      message_of<InvalidArgument>([] { explain(find_policy("torch"), "mm.default", {"fp23"}); }),
      HasSubstr("unknown format \"fp23\""));
  EXPECT_THAT(message_of<InvalidArgument>([] {
                explain(find_policy("torch"), "relu", {"fp32", "fp32"});
              }),
              HasSubstr("no overload of relu takes 2 tensors"));
}

TEST(Explain, SaysWhenRulesWaitInsideAKeptOperation) {
  const Policy policy = find_policy("torch layer_norm=keep");
  EXPECT_THAT(explain(policy, "layer_norm", {"bf16"}, "").front().outcome,
              HasSubstr("the operations that it is made of follow their own rules"));
  EXPECT_EQ(explain(policy, "relu", {"bf16"}, "").front().outcome, "runs in what arrives");
}

}  // namespace
}  // namespace mantissa::amp
