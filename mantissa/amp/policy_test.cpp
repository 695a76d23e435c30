#include "mantissa/amp/policy.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::amp {
namespace {

using numerics::Format;

std::string refusal(const std::string& text) {
  try {
    (void)parse_policy(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Policy, ANameAloneIsABase) {
  EXPECT_EQ(find_policy("torch"), Policy());
  EXPECT_EQ(find_policy("torch-cpu"), (Policy{.base = "torch-cpu"}));
  EXPECT_EQ(find_policy("fp32"), (Policy{.base = "fp32", .compute = Format::fp32}));
  EXPECT_EQ(find_policy("torch-fixed").fixes.size(), kFixes.size());
  EXPECT_EQ(find_policy("apex-o2").param, Format::fp16);
}

TEST(Policy, TextPrintsWhatItParses) {
  for (const std::string text :
       {"torch compute=bf16", "torch-cpu compute=fp16", "fp32 compute=fp32", "torch compute=tf32",
        "torch compute=bf16 mm=fp32 softmax.int=keep", "fp32 compute=fp16 mm.default=lower",
        "torch compute=bf16 param=bf16 output=fp32", "torch compute=bf16 reduce=fp32 fft=fp32",
        "torch-fixed compute=bf16 promote=listed", "genomics compute=bf16 scope:a.*=bf16",
        "torch compute=fp16 mm@blocks.*.filter=fp32 softmax.int@a=keep",
        "torch compute=fp16 mm=fp32 scope:blocks.*.filter=fp32 parameter:*.A_log=fp32"}) {
    EXPECT_EQ(to_string(parse_policy(text)), text);
  }
}

TEST(Policy, OperationsWithoutANamespaceAreOfAten) {
  EXPECT_EQ(parse_policy("torch aten::mm=fp32"), parse_policy("torch  mm=fp32 "));
  EXPECT_NE(parse_policy("torch mm=fp32"), parse_policy("torch mm=keep"));
  EXPECT_NE(parse_policy("torch"), parse_policy("torch compute=fp16"));
}

TEST(Policy, AnOperationWithoutAnOverloadMeansAllThatReturnTensors) {
  const auto rules = resolved_rules(parse_policy("fp32 compute=bf16 mm=lower sum=fp32_output"));
  EXPECT_EQ(rules.at("aten::mm").rule, Rule::lower);
  EXPECT_EQ(rules.at("aten::sum").rule, Rule::fp32_output);
  EXPECT_EQ(rules.at("aten::sum.dim_IntList").rule, Rule::fp32_output);
  EXPECT_FALSE(rules.contains("aten::mm.out"));
  EXPECT_FALSE(rules.contains("aten::sum.IntList_out"));
}

TEST(Policy, AnOverloadGoesBeforeItsOperation) {
  const auto rules = resolved_rules(parse_policy("torch sum=fp32 sum.default=widest"));
  EXPECT_EQ(rules.at("aten::sum").rule, Rule::widest);
  EXPECT_EQ(rules.at("aten::sum.dim_IntList").rule, Rule::fp32);
}

TEST(Policy, KeepTakesAnOperationOffTheTable) {
  EXPECT_TRUE(resolved_rules(find_policy("torch")).contains("aten::layer_norm"));
  EXPECT_FALSE(resolved_rules(find_policy("torch layer_norm=keep")).contains("aten::layer_norm"));
}

TEST(Policy, OurOperationsFollowLinear) {
  const auto rule_of = [](const std::string& operation, const std::string& text) {
    const auto rules = resolved_rules(parse_policy(text));
    const auto found = rules.find(operation);
    return found == rules.end() ? Rule::keep : found->second.rule;
  };
  const auto rule_under = [&](const std::string& text) {
    return rule_of("mantissa::linear_cross_entropy", text);
  };
  for (const std::string& name : policy_names()) {
    const bool keeps = name == "fp32";
    EXPECT_EQ(rule_under(name), keeps ? Rule::keep : Rule::lower) << name;
    EXPECT_EQ(rule_of("mantissa::gelu_linear", name), keeps ? Rule::keep : Rule::lower) << name;
    EXPECT_EQ(rule_of("mantissa::add_layer_norm", name), keeps ? Rule::keep : Rule::lower_output)
        << name;
    EXPECT_EQ(rule_of("mantissa::dropout", name), Rule::keep) << name;
    EXPECT_EQ(rule_of("mantissa::embedding", name), rule_of("aten::embedding", name)) << name;
  }
  EXPECT_EQ(rule_of("mantissa::embedding", "lean"), Rule::lower_output);
  EXPECT_EQ(rule_of("mantissa::embedding", "lean embedding=keep"), Rule::keep);
  EXPECT_EQ(rule_of("mantissa::layer_norm", "torch linear=fp32"), Rule::keep);
  EXPECT_EQ(rule_under("torch linear=fp32"), Rule::fp32);
  EXPECT_EQ(rule_under("torch linear=fp32 mantissa::linear_cross_entropy=lower"), Rule::lower);
  EXPECT_EQ(rule_under("torch mantissa::linear_cross_entropy=keep"), Rule::keep);
  // Linear becomes mm.
  EXPECT_EQ(rule_under("torch linear=keep mm=fp32"), Rule::fp32);
  EXPECT_EQ(rule_under("fp32 compute=bf16 mm=lower"), Rule::lower);
  // The loss stays FP32.
  EXPECT_EQ(rule_under("torch linear=lower_output mm=keep"), Rule::keep);
}

TEST(Policy, UnknownNamesAreAnsweredWithTheNearest) {
  EXPECT_EQ(refusal("torhc"), "policy: unknown base \"torhc\"; did you mean \"torch\"?");
  EXPECT_EQ(refusal("torch compute=fp61"),
            "policy: unknown format \"fp61\" in \"compute=fp61\"; valid: fp32 tf32 bf16 fp16");
  EXPECT_EQ(refusal("torch compute=fp8_e4m3"),
            "policy: unknown format \"fp8_e4m3\" in \"compute=fp8_e4m3\"; valid: fp32 tf32 bf16 "
            "fp16");
  EXPECT_EQ(refusal("torch layer_nrom=fp32"),
            "policy: unknown operation \"layer_nrom\"; did you mean \"layer_norm\"?");
  EXPECT_EQ(refusal("torch aten::layer_nrom=fp32"),
            "policy: unknown operation \"aten::layer_nrom\"; did you mean \"aten::layer_norm\"?");
  EXPECT_EQ(refusal("torch softmax.imt=fp32"),
            "policy: operation aten::softmax has no overload \"imt\"; did you mean \"int\"?");
  EXPECT_EQ(refusal("torch mm=fp23"),
            "policy: operation \"mm\": rule: unknown \"fp23\"; did you mean \"fp32\"?");
}

TEST(Policy, AnUnknownPrefixIsNotTakenForAnOperation) {
  EXPECT_EQ(refusal("torch param:nosuch.*=fp32"),
            "policy: unknown prefix \"param:\" of \"param:nosuch.*\"; valid: scope: parameter:");
  EXPECT_EQ(refusal("torch scopes:a=fp32"),
            "policy: unknown prefix \"scopes:\" of \"scopes:a\"; did you mean \"scope:\"?");
  EXPECT_EQ(refusal("torch nosuchop=fp32"),
            "policy: unknown operation \"nosuchop\"; load the library that registers it first");
}

TEST(Policy, AnOperationOfALibraryThatIsNotLoadedSaysSo) {
  EXPECT_EQ(refusal("torch another_library_of_somebody::an_operation_of_theirs=fp32"),
            "policy: unknown operation \"another_library_of_somebody::an_operation_of_theirs\"; "
            "load the library that registers it first");
}

TEST(Policy, SettingsWithoutAnEffectAreErrors) {
  EXPECT_EQ(refusal("fp32 compute=bf16"),
            "policy: compute=bf16 has no effect, because no operation of base \"fp32\" has rule "
            "lower; use another base, or compute=fp32");
  EXPECT_EQ(refusal("torch mm.out=fp32"),
            "policy: operation \"mm.out\" writes into its arguments, which keep their dtypes; list "
            "the form that returns a tensor");
  EXPECT_NE(refusal("torch addmm_=fp32"), "accepted");
  EXPECT_EQ(refusal("torch mm=fp32_output"),
            "policy: operation \"mm\" has no dtype argument, so fp32_output does not apply; use "
            "fp32");
  EXPECT_EQ(refusal("torch randperm=fp32"),
            "policy: operation \"randperm\" takes no tensor, so no rule applies; remove the entry");
}

TEST(Policy, SettingsGivenTwiceAreErrors) {
  EXPECT_EQ(refusal("torch mm=fp32 aten::mm=keep"),
            "policy: operation \"aten::mm\" has two rules; keep one");
  EXPECT_EQ(refusal("torch compute=bf16 compute=fp16"),
            "policy: compute=fp16 is given after another compute; keep one");
}

TEST(Policy, TextThatIsNoPolicyIsRefused) {
  EXPECT_EQ(refusal(" "),
            "policy: the text is empty; write a base (mantissa policy list shows them), then "
            "SETTING=VALUE and OPERATION=RULE");
  EXPECT_EQ(refusal("torch bf16"),
            "policy: \"bf16\" is not a setting; write compute=FORMAT or OPERATION=RULE");
}

TEST(Policy, AValueThatNoTextGivesIsRefusedWhenResolved) {
  EXPECT_THROW(resolved_rules(Policy{.base = "tensorflow"}), InvalidArgument);
  EXPECT_THROW(resolved_rules(Policy{.compute = Format::fp8_e5m2}), InvalidArgument);
  EXPECT_THROW(resolved_rules(Policy{.rules = {{"aten::nothing", Rule::fp32}}}), InvalidArgument);
}

TEST(Policy, ASwitchTakesItsTwoWords) {
  EXPECT_TRUE(find_policy("torch reduce=fp32").fixes.contains(Fix::reduce));
  EXPECT_FALSE(find_policy("torch-fixed reduce=compute").fixes.contains(Fix::reduce));
  EXPECT_EQ(refusal("torch reduce=bf16"), "policy: reduce=bf16; valid: fp32 compute");
  EXPECT_EQ(refusal("torch fft=fp32 fft=keep"),
            "policy: fft=keep is given after another fft; keep one");
}

TEST(Policy, AScopeHoldsForWhatIsInsideAndTheMostExactDecides) {
  const Policy policy = find_policy("torch scope:blocks.*=fp16 scope:blocks.*.filter=fp32");
  EXPECT_EQ(compute_format(policy, ""), Format::bf16);
  EXPECT_EQ(compute_format(policy, "head"), Format::bf16);
  EXPECT_EQ(compute_format(policy, "blocks.0"), Format::fp16);
  EXPECT_EQ(compute_format(policy, "blocks.0.mlp.up"), Format::fp16);
  EXPECT_EQ(compute_format(policy, "blocks.0.filter"), Format::fp32);
  EXPECT_EQ(compute_format(policy, "blocks.0.filter.mlp"), Format::fp32);
}

TEST(Policy, AnOperationCanHaveARuleInSomeScopes) {
  const Policy policy = find_policy("torch mm=keep mm@blocks.*=lower mm@blocks.0.mlp=fp32");
  const auto rule_in = [&](const std::string& scope) {
    const auto rules = resolved_rules(policy, scope);
    return rules.contains("aten::mm") ? rules.at("aten::mm").rule : Rule::keep;
  };
  EXPECT_EQ(rule_in(""), Rule::keep);
  EXPECT_EQ(rule_in("head"), Rule::keep);
  EXPECT_EQ(rule_in("blocks.0"), Rule::lower);
  EXPECT_EQ(rule_in("blocks.0.mlp.up"), Rule::fp32);
  EXPECT_EQ(rule_in("blocks.1.mlp"), Rule::lower);
  EXPECT_EQ(resolved_rules(policy, "blocks.0.mlp").at("aten::mm").source, "mm@blocks.0.mlp=fp32");
  EXPECT_FALSE(resolved_rules(find_policy("torch mm@a=keep"), "a").contains("aten::mm"));
}

// Bisection over operations needs entries that are of one operation each.
TEST(Policy, ARuleInSomeScopesIsOfThatOperationAlone) {
  const auto everywhere = resolved_rules(find_policy("torch linear=fp32"), "a");
  EXPECT_EQ(everywhere.at("mantissa::rotary_attention").rule, Rule::fp32);
  const auto here = resolved_rules(find_policy("torch linear@a=fp32"), "a");
  EXPECT_EQ(here.at("aten::linear").rule, Rule::fp32);
  EXPECT_EQ(here.at("mantissa::rotary_attention").rule, Rule::lower);
}

TEST(Policy, ARuleInScopesWithoutANameIsRefused) {
  EXPECT_EQ(refusal("torch mm@=fp32"),
            "policy: \"mm@\" names no scope after the @; write mm@blocks.*=fp32, or mm=fp32 for "
            "all of them");
  EXPECT_EQ(refusal("torch mmm@a=fp32"), refusal("torch mmm=fp32"));
  EXPECT_EQ(refusal("torch mm@a=fp32 mm@a=keep"),
            "policy: operation \"mm@a\" has two rules; keep one");
}

TEST(Policy, AnOperationOfALibraryCalledScopeIsNoScope) {
  EXPECT_EQ(refusal("torch scope::op=fp32"),
            "policy: unknown operation \"scope::op\"; load the library that registers it first");
}

}  // namespace
}  // namespace mantissa::amp
