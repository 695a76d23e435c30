#include <algorithm>
#include <array>

#include <ATen/TensorOperators.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/monitor/lint_rules.h"

namespace mantissa::monitor {
namespace {

// What chooses from what, by the names that the schema gives them.
struct Choice {
  std::string_view operation;
  std::string_view from;
  std::string_view by;
  std::string_view what;
};

constexpr std::array kChoices = {
    Choice{"embedding", "weight", "indices", "rows"},
    Choice{"embedding_bag", "weight", "indices", "rows"},
    Choice{"index_select", "self", "index", "entries"},
    Choice{"gather", "self", "index", "entries"},
    Choice{"cross_entropy_loss", "self", "target", "classes"},
    Choice{"nll_loss_nd", "self", "target", "classes"},
    Choice{"nll_loss", "self", "target", "classes"},
};

// The number of entries that there are to choose from.
int64_t num_entries(const TracedCall& call, const at::Tensor& from, std::string_view what) {
  if (what == "rows") {
    return from.size(0);
  }
  if (what == "classes") {
    return from.size(from.dim() > 1 ? 1 : 0);
  }
  const c10::IValue* dim = argument(call, "dim");
  return from.dim() == 0 || dim == nullptr ? 1 : from.size(dim->toInt());
}

Hits check_choice(const TracedCall& call, const Choice& choice) {
  const at::Tensor from = tensor_argument(call, choice.from);
  const at::Tensor by = tensor_argument(call, choice.by);
  if (!from.defined() || !is_readable(by) ||
      !c10::isIntegralType(by.scalar_type(), /*includeBool=*/false)) {
    return {};
  }
  const int64_t num = num_entries(call, from, choice.what);
  at::Tensor bad = (by < 0).logical_or(by >= num);
  if (const c10::IValue* ignored = argument(call, "ignore_index"); ignored != nullptr) {
    bad = bad.logical_and(by != ignored->toInt());
  }
  if (!has_any(bad)) {
    return {};
  }
  const int64_t first = by.masked_select(bad)[0].item<int64_t>();
  return {{.format = format_name(from),
           .value = std::to_string(first),
           .consequence = concat("index ", first, " of ", num, " ", choice.what, ": ",
                                 num_true(bad), " of ", by.numel(), " indices are outside"),
           .remedy = "check the tokens or labels against the size of the table, in the data",
           .of_values = true}};
}

}  // namespace

Hits check_index(const TracedCall& call, const LintOptions& /*options*/) {
  if (call.in_backward || !call.operation) {
    return {};
  }
  const std::string name = base_name(call);
  const auto found = std::find_if(kChoices.begin(), kChoices.end(),
                                  [&](const Choice& choice) { return choice.operation == name; });
  return found == kChoices.end() ? Hits() : check_choice(call, *found);
}

}  // namespace mantissa::monitor
