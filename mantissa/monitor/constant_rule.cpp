#include <algorithm>
#include <array>
#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/monitor/lint_rules.h"
#include "mantissa/numerics/ulp.h"

namespace mantissa::monitor {
namespace {

using numerics::Format;

// What an operation does with a constant that its format cannot hold.
enum class Use : uint8_t { sum, bound, compare, fill };

struct ConstantArgument {
  std::string_view operation;
  std::string_view argument;
  Use use;
};

// Operations that round the constant to the format of their result, or whose result is rounded so
// that it comes to the same. Not in the list: products and quotients, whose kernels hold it in FP32
// with effect, and the eps of norms, which is added to an FP32 variance.
constexpr std::array kConstantArguments = {
    ConstantArgument{"add", "other", Use::sum},
    ConstantArgument{"sub", "other", Use::sum},
    ConstantArgument{"rsub", "other", Use::sum},
    ConstantArgument{"clamp", "min", Use::bound},
    ConstantArgument{"clamp", "max", Use::bound},
    ConstantArgument{"clamp_min", "min", Use::bound},
    ConstantArgument{"clamp_max", "max", Use::bound},
    ConstantArgument{"hardtanh", "min_val", Use::bound},
    ConstantArgument{"hardtanh", "max_val", Use::bound},
    ConstantArgument{"maximum", "other", Use::bound},
    ConstantArgument{"minimum", "other", Use::bound},
    ConstantArgument{"gt", "other", Use::compare},
    ConstantArgument{"ge", "other", Use::compare},
    ConstantArgument{"lt", "other", Use::compare},
    ConstantArgument{"le", "other", Use::compare},
    ConstantArgument{"eq", "other", Use::compare},
    ConstantArgument{"ne", "other", Use::compare},
    ConstantArgument{"masked_fill", "value", Use::fill},
    ConstantArgument{"index_fill", "value", Use::fill},
    ConstantArgument{"scatter", "value", Use::fill},
    ConstantArgument{"constant_pad_nd", "value", Use::fill},
    ConstantArgument{"where", "self", Use::fill},
    ConstantArgument{"where", "other", Use::fill},
    ConstantArgument{"fill", "value", Use::fill},
    ConstantArgument{"full", "fill_value", Use::fill},
    ConstantArgument{"full_like", "fill_value", Use::fill},
    ConstantArgument{"new_full", "fill_value", Use::fill},
    ConstantArgument{"scalar_tensor", "s", Use::fill},
    ConstantArgument{"_to_copy", "self", Use::fill},
    ConstantArgument{"copy", "src", Use::fill},
};

// A number, or a tensor of one number that is wider than 16 bits.
std::optional<double> constant(const c10::IValue* value) {
  if (value == nullptr) {
    return std::nullopt;
  }
  if (value->isDouble() || value->isInt()) {
    return value->toScalar().toDouble();
  }
  if (value->isTensor()) {
    const at::Tensor& tensor = value->toTensor();
    const at::ScalarType dtype = tensor.defined() ? tensor.scalar_type() : at::kHalf;
    const bool is_wide =
        dtype == at::kFloat || dtype == at::kDouble || dtype == at::kLong || dtype == at::kInt;
    if (is_readable(tensor) && tensor.dim() == 0 && is_wide) {
      return tensor.item<double>();
    }
  }
  return std::nullopt;
}

// In which the constant ends up. A call that threw has no result, only what it was asked for.
std::optional<Format> constant_format(const TracedCall& call, Use use) {
  if (use == Use::compare) {
    return format_16bit(tensor_argument(call, "self"));
  }
  if (!call.outputs.empty()) {
    return format_16bit(result(call));
  }
  const c10::IValue* dtype = argument(call, "dtype");
  if (dtype != nullptr && dtype->isInt()) {
    const at::ScalarType asked = dtype->toScalarType();
    return asked == at::kHalf       ? std::make_optional(Format::fp16)
           : asked == at::kBFloat16 ? std::make_optional(Format::bf16)
                                    : std::nullopt;
  }
  return format_16bit(tensor_argument(call, "self"));
}

// A kernel may cast a constant to the format of its operand and compute with the wider one it came
// from, as mul and div do on CPU: such a cast says nothing.
bool is_cast_within_another(const TracedCall& call) {
  if (!is_cast(call)) {
    return false;
  }
  for (const TracedCall* outer = call.outer; outer != nullptr; outer = outer->outer) {
    if (!is_cast(*outer)) {
      return true;
    }
  }
  return false;
}

std::string_view effect_of_zero(Use use) {
  switch (use) {
    case Use::sum:
      return "no sum changes by it, and 0 stays 0";
    case Use::bound:
      return "the bound is 0";
    case Use::compare:
      return "the comparison is with 0";
    case Use::fill:
      return "0 is written";
  }
  MANTISSA_ASSERT(false);
}

std::string_view effect_of_infinity(Use use) {
  switch (use) {
    case Use::sum:
      return "every sum is infinite, and a row of them NaN after softmax";
    case Use::bound:
      return "it bounds nothing, or the call throws";
    case Use::compare:
      return "the comparison is with infinity";
    case Use::fill:
      return "infinity is written, and a row of it is NaN after softmax, or the call throws";
  }
  MANTISSA_ASSERT(false);
}

std::optional<Hit> check_value(double value, Format format, Use use) {
  const numerics::FormatInfo& info = numerics::info(format);
  const double magnitude = std::abs(value);
  const std::string name(info.name);
  if (magnitude == 0 || !std::isfinite(value)) {
    return std::nullopt;
  }
  Hit hit{.format = name, .value = text(value)};
  if (magnitude < info.smallest_subnormal / 2) {
    hit.consequence = concat(text(value), " is 0 in ", name, ", whose smallest number is ",
                             text(info.smallest_subnormal), ": ", effect_of_zero(use));
    hit.remedy = concat("use at least ", text(info.smallest_normal),
                        ", or run the operation in fp32 (a rule or a scope of the policy)");
  } else if (magnitude >= info.max + numerics::ulp(format, info.max) / 2) {
    hit.consequence = concat(text(value), " is infinite in ", name, ", whose largest number is ",
                             text(info.max), ": ", effect_of_infinity(use));
    hit.remedy = concat("use ", value < 0 ? "-" : "", text(info.max),
                        ", or run the operation in fp32 (a rule or a scope of the policy)");
  } else if (magnitude < info.smallest_normal) {
    hit.severity = Severity::note;
    hit.consequence = concat(text(value), " is subnormal in ", name, ": right to ",
                             text(info.smallest_subnormal / 2), ", that is to ",
                             text(info.smallest_subnormal / 2 / magnitude * 100), " %");
    hit.remedy = concat("use at least ", text(info.smallest_normal), " where that matters");
  } else {
    return std::nullopt;
  }
  return hit;
}

}  // namespace

Hits check_constant(const TracedCall& call, const LintOptions& /*options*/) {
  Hits hits;
  const std::string name = base_name(call);
  for (const ConstantArgument& entry : kConstantArguments) {
    if (entry.operation != name || is_cast_within_another(call)) {
      continue;
    }
    const auto value = constant(argument(call, entry.argument));
    const auto format = constant_format(call, entry.use);
    if (value && format) {
      if (auto hit = check_value(*value, *format, entry.use)) {
        hits.push_back(std::move(*hit));
      }
    }
  }
  return hits;
}

}  // namespace mantissa::monitor
