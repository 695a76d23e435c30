#include "mantissa/amp/op_rules.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::amp {
namespace {

TEST(OpRules, RulesRoundTripAsText) {
  for (const Rule rule : {Rule::lower, Rule::fp32, Rule::fp32_output, Rule::lower_output,
                          Rule::widest, Rule::keep, Rule::banned}) {
    EXPECT_EQ(parse_rule(to_string(rule)), rule);
  }
}

TEST(OpRules, AnUnknownRuleNamesTheNearest) {
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)parse_rule("widst"); }),
            "rule: unknown \"widst\"; did you mean \"widest\"?");
}

}  // namespace
}  // namespace mantissa::amp
