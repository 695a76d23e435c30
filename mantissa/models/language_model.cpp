#include "mantissa/models/language_model.h"

#include <array>
#include <utility>

#include <ATen/ops/cross_entropy_loss.h>

#include "mantissa/base/error.h"
#include "mantissa/models/residual_stack.h"

namespace mantissa::models {

LanguageModel::~LanguageModel() = default;

Recompute parse_recompute(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Recompute>, 4> kNames = {
      {{"none", Recompute::none},
       {"elementwise", Recompute::elementwise},
       {"block", Recompute::block},
       {"full", Recompute::full}}};
  for (const auto& [known, value] : kNames) {
    if (known == name) {
      return value;
    }
  }
  throw InvalidArgument(
      concat("recompute: unknown \"", name, "\"; valid: none elementwise block full"));
}

at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& targets) {
  MANTISSA_CHECK(logits.dim() == 3, InvalidArgument, "token_loss: logits have shape ",
                 logits.sizes(), "; pass (batch, length, vocabulary)");
  check_targets(targets, logits.sizes().slice(0, 2));
  return at::cross_entropy_loss(widened(logits).flatten(0, 1), targets.flatten());
}

}  // namespace mantissa::models
