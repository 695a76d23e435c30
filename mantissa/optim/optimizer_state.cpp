#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "mantissa/base/error.h"
#include "mantissa/optim/optimizer.h"
#include "mantissa/optim/parameter_slot.h"

namespace mantissa::optim {
namespace {

// `a, b and 3 more`
std::string enumerate(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    text += (i == 0 ? "\"" : ", \"") + names[i] + "\"";
  }
  return names.size() > kShown ? concat(text, " and ", names.size() - kShown, " more") : text;
}

void check_names(const std::set<std::string>& expected, const std::set<std::string>& found) {
  std::vector<std::string> missing;
  std::vector<std::string> additional;
  std::set_difference(expected.begin(), expected.end(), found.begin(), found.end(),
                      std::back_inserter(missing));
  std::set_difference(found.begin(), found.end(), expected.begin(), expected.end(),
                      std::back_inserter(additional));
  MANTISSA_CHECK(missing.empty(), Corruption, "optimizer: the state lacks ", enumerate(missing),
                 "; resume with the model and the settings that were saved");
  MANTISSA_CHECK(additional.empty(), Corruption, "optimizer: the state also has ",
                 enumerate(additional), "; resume with the model and the settings that were saved");
}

void check_entry(const std::string& name, const at::Tensor& saved, const at::Tensor& own) {
  MANTISSA_CHECK(saved.scalar_type() == own.scalar_type() && saved.sizes() == own.sizes(),
                 Corruption, "optimizer: \"", name, "\" in the state is ", saved.scalar_type(),
                 " of shape ", saved.sizes(), ", here it is ", own.scalar_type(), " of shape ",
                 own.sizes(), "; resume with the model and the settings that were saved");
}

}  // namespace

tensor::StateDict Optimizer::state_dict() const {
  require_whole();
  tensor::StateDict state;
  state.set("kind", std::string(to_string(options_.kind)));
  state.set("masters", std::string(to_string(options_.masters)));
  state.set("moments", std::string(to_string(options_.moments)));
  state.set("steps", steps());
  for (const ParameterSlot& slot : slots_) {
    MANTISSA_CHECK(!slot.accumulator.defined(), InvalidArgument,
                   "optimizer: state_dict was called while gradients accumulate; call it after "
                   "step()");
    for (const auto& [name, tensor] : slot.state()) {
      state.set(name, tensor);
    }
  }
  return state;
}

void Optimizer::load_state_dict(const tensor::StateDict& state) {
  const at::NoGradGuard no_grad;
  MANTISSA_CHECK(state.text("kind") == to_string(options_.kind), Corruption,
                 "optimizer: the state is of \"", state.text("kind"), "\", this optimizer is \"",
                 to_string(options_.kind), "\"; resume with the kind that was saved");
  MANTISSA_CHECK(state.text("masters") == to_string(options_.masters), Corruption,
                 "optimizer: the state has masters \"", state.text("masters"),
                 "\", this optimizer \"", to_string(options_.masters),
                 "\"; resume with the setting that was saved");
  MANTISSA_CHECK(state.text("moments") == to_string(options_.moments), Corruption,
                 "optimizer: the state has moments \"", state.text("moments"),
                 "\", this optimizer \"", to_string(options_.moments),
                 "\"; resume with the setting that was saved");
  const int64_t steps = state.integer("steps");
  MANTISSA_CHECK(steps >= 0, Corruption, "optimizer: steps in the state is ", steps,
                 "; the checkpoint is damaged");
  std::set<std::string> expected;
  for (const ParameterSlot& slot : slots_) {
    for (const auto& [name, tensor] : slot.state()) {
      expected.insert(name);
    }
  }
  std::set<std::string> found;
  for (const auto& [name, tensor] : state.tensors()) {
    found.insert(name);
  }
  check_names(expected, found);
  for (const ParameterSlot& slot : slots_) {
    for (const auto& [name, tensor] : slot.state()) {
      check_entry(name, state.tensor(name), tensor);
    }
  }
  for (ParameterSlot& slot : slots_) {
    for (const auto& [name, tensor] : slot.state()) {
      state.copy_to(name, tensor);
    }
    if (slot.is_16bit() && slot.master.defined()) {
      slot.parameter.detach().copy_(slot.master);
    }
  }
  steps_.fill_(steps);
}

}  // namespace mantissa::optim
