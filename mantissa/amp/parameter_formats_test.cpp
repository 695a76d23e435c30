#include "mantissa/amp/parameter_formats.h"

#include <initializer_list>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::amp {
namespace {

using numerics::Format;
using ::testing::HasSubstr;

tensor::ParameterList example() {
  return {{"blocks.0.in.weight", at::ones({2, 2}).requires_grad_()},
          {"blocks.0.A_log", at::ones({2, 2}).requires_grad_()}};
}

TEST(ParameterFormats, AnEntryGoesBeforeTheFormatOfAll) {
  const Policy policy = find_policy("torch param=bf16 parameter:*.A_log=fp32");
  const tensor::ParameterList parameters = example();
  const ParameterFormats formats(policy, parameters);
  EXPECT_EQ(formats.formats()[0].second, Format::bf16);
  EXPECT_EQ(formats.formats()[1].second, Format::fp32);
  formats.cast_parameters_();
  EXPECT_EQ(parameters[0].value.scalar_type(), at::kBFloat16);
  EXPECT_EQ(parameters[1].value.scalar_type(), at::kFloat);
}

TEST(ParameterFormats, TheMostExactGlobDecides) {
  const Policy policy = find_policy(
      "torch param=bf16 parameter:*=bf16 parameter:blocks.*=fp16 parameter:blocks.0.A*=fp32");
  EXPECT_EQ(parameter_format(policy, "head"), Format::bf16);
  EXPECT_EQ(parameter_format(policy, "blocks.0.in.weight"), Format::fp16);
  EXPECT_EQ(parameter_format(policy, "blocks.0.A_log"), Format::fp32);
}

TEST(ParameterFormats, CastsKeepIdentityAndDropGradients) {
  const tensor::ParameterList parameters = example();
  parameters[0].value.sum().add(parameters[1].value.sum()).backward();
  const ParameterFormats formats(find_policy("torch param=bf16 parameter:*.A_log=fp32"),
                                 parameters);
  formats.cast_parameters_();
  EXPECT_TRUE(parameters[0].value.requires_grad());
  EXPECT_TRUE(parameters[0].value.is_leaf());
  EXPECT_FALSE(parameters[0].value.grad().defined());
  EXPECT_TRUE(parameters[1].value.grad().defined());
}

// GENERator#1: a model trained in BF16 gives NaN once it is cast to FP16.
TEST(ParameterFormats, AWeightThatTheFormatCannotHoldIsNamedAndNothingIsCast) {
  const tensor::ParameterList parameters = example();
  parameters[1].value.set_data(at::full({2, 2}, 1e5));
  const ParameterFormats formats(find_policy("torch compute=fp16 param=fp16"), parameters);
  EXPECT_THAT(message_of<InvalidArgument>([&] { formats.cast_parameters_(); }),
              HasSubstr("parameter blocks.0.A_log: has values beyond the range of Half, up to "
                        "100000"));
  EXPECT_EQ(parameters[0].value.scalar_type(), at::kFloat);
}

// Beyond the largest number of the format as it is rounded: 65520 is infinite in FP16 and 65519 is
// not; of BF16 only FP32 has numbers beyond.
TEST(ParameterFormats, EveryFiniteWeightThatWouldBecomeInfiniteIsFound) {
  struct Case {
    at::ScalarType stored;
    double value;
    const char* format;
    bool fits;
  };
  const double inf = std::numeric_limits<double>::infinity();
  for (const auto& [stored, value, format, fits] :
       std::initializer_list<Case>{{at::kFloat, -7e4, "fp16", false},
                                   {at::kFloat, 65520, "fp16", false},
                                   {at::kFloat, 65519, "fp16", true},
                                   {at::kBFloat16, 65536, "fp16", false},
                                   {at::kBFloat16, 3e38, "fp16", false},
                                   {at::kFloat, 3.4e38, "bf16", false},
                                   {at::kFloat, -3.38e38, "bf16", true},
                                   {at::kFloat, inf, "fp16", true},  // it was so before
                                   {at::kFloat, -inf, "bf16", true}}) {
    SCOPED_TRACE(::testing::Message() << value << " of " << stored << " in " << format);
    const at::Tensor values = at::zeros({3, 5}, stored);
    values.t()[4][2] = value;  // one of many
    const tensor::ParameterList parameters = {{"empty", at::ones({0}).requires_grad_()},
                                              {"w", values.t().requires_grad_()}};
    const ParameterFormats formats(find_policy(concat("torch compute=", format, " param=", format)),
                                   parameters);
    if (fits) {
      EXPECT_NO_THROW(formats.cast_parameters_());
    } else {
      EXPECT_THAT(message_of<InvalidArgument>([&] { formats.cast_parameters_(); }),
                  HasSubstr("parameter w: has values beyond the range of "));
      EXPECT_EQ(parameters[0].value.scalar_type(), at::kFloat);
      EXPECT_EQ(parameters[1].value.scalar_type(), stored);
    }
  }
}

TEST(ParameterFormats, AnEntryThatMatchesNothingNamesTheNearest) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
              const ParameterFormats formats(find_policy("torch parameter:blocks.0.A_lgo=fp32"),
                                             example());
            }),
            "policy: parameter \"blocks.0.A_lgo\" matches no parameter of the model; did you mean "
            "\"blocks.0.A_log\"?");
  // Those of a base are for models of many kinds.
  EXPECT_NO_THROW(ParameterFormats(find_policy("genomics"), {{"w", at::ones({1})}}));
}

TEST(ParameterFormats, AnOperationWithAnFp32ParameterRunsInFp32) {
  const Policy policy = find_policy("torch parameter:*.A_log=fp32");
  const tensor::ParameterList parameters = example();
  const ParameterFormats formats(policy, parameters);
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  const Autocast region(policy, formats);
  EXPECT_EQ(at::mm(x, parameters[0].value).scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::mm(x, parameters[1].value).scalar_type(), at::kFloat);
}

TEST(ParameterFormats, ARegionWithoutThemRefusesAPolicyThatHasEntries) {
  EXPECT_EQ(message_of<InvalidArgument>(
                [] { const Autocast region(find_policy("torch parameter:*.A_log=fp32")); }),
            "autocast: policy torch has a format for the parameters \"*.A_log\"; pass the "
            "amp::ParameterFormats of your model to the region as well");
}

TEST(CastOutput, IsThatOfThePolicy) {
  const at::Tensor x = at::ones({2}, at::kBFloat16);
  EXPECT_EQ(cast_output(find_policy("torch"), x).scalar_type(), at::kBFloat16);
  EXPECT_EQ(cast_output(find_policy("torch output=fp32"), x).scalar_type(), at::kFloat);
  EXPECT_EQ(cast_output(find_policy("torch output=fp32"), x.to(at::kLong)).scalar_type(),
            at::kLong);
}

}  // namespace
}  // namespace mantissa::amp
