#include "mantissa/amp/op_rules.h"

#include <array>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"

namespace mantissa::amp {
namespace {

constexpr std::array kRules = {Rule::lower,  Rule::fp32,    Rule::fp32_output, Rule::lower_output,
                               Rule::widest, Rule::to_self, Rule::keep,        Rule::banned};

}  // namespace

std::string_view to_string(Rule rule) {
  switch (rule) {
    case Rule::lower:
      return "lower";
    case Rule::fp32:
      return "fp32";
    case Rule::fp32_output:
      return "fp32_output";
    case Rule::lower_output:
      return "lower_output";
    case Rule::widest:
      return "widest";
    case Rule::to_self:
      return "to_self";
    case Rule::keep:
      return "keep";
    case Rule::banned:
      return "banned";
  }
  MANTISSA_ASSERT(false);
}

Rule parse_rule(std::string_view name) { return parse_enumerator(name, kRules, "rule: unknown"); }

}  // namespace mantissa::amp
