#include "mantissa/monitor/nonfinite_end.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <ATen/core/function_schema.h>

#include "mantissa/monitor/call_values.h"

namespace mantissa::monitor {
namespace {

bool replaces(const TracedCall& call) {
  constexpr std::array<std::string_view, 5> kReplace = {"where", "masked_fill", "nan_to_num",
                                                        "masked_select", "index"};
  return std::find(kReplace.begin(), kReplace.end(), base_name(call)) != kReplace.end();
}

bool returns_reals(const TracedCall& call) {
  const std::vector<at::Tensor> tensors = tensors_in(call.outputs);
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return holds_reals(tensor); });
}

bool returns_view(const TracedCall& call) {
  const auto& returns = call.operation->schema().returns();
  return std::any_of(returns.begin(), returns.end(), is_view);
}

}  // namespace

void NonfiniteEnd::visit(const TracedCall& call) {
  if (call.name.find("AccumulateGrad") != std::string::npos) {
    gradients_are_finite_ = gradients_are_finite_ && all_finite(tensors_in(call.inputs));
  }
  const bool is_inner = call.outer != nullptr && call.outer->operation;
  const bool hands_on = call.operation && returns_view(call) && !is_cast(call);
  if (is_inner || !call.operation || call.outputs.empty() || hands_on) {
    return;
  }
  const bool is_real = returns_reals(call);
  const bool ends_finite = all_finite(tensors_in(call.outputs));
  if (!call.in_backward && is_real &&
      !call.name.ends_with("_like")) {  // which backward begins with
    last_is_finite_ = ends_finite;
  }
  if (!ends_finite || all_finite(tensors_in(call.inputs))) {
    return;
  }
  // A comparison tells of them, which changes nothing.
  was_replaced_ = was_replaced_ || replaces(call) || (!is_real && is_cast(call));
  was_used_ = was_used_ || (is_real && !replaces(call));
}

}  // namespace mantissa::monitor
