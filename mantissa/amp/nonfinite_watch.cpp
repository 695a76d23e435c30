#include "mantissa/amp/nonfinite_watch.h"

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/record_function.h>

#include "mantissa/base/error.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::amp {
namespace {

struct Frame : at::ObserverContext {
  std::string name;
  bool inputs_are_finite = true;
  bool is_node = false;   // of the backward graph
  int64_t sequence = -1;  // of the forward operation that made the node
};

// The first value that is not finite.
std::optional<double> nonfinite_value(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_meta() ||
      !(tensor.is_floating_point() || tensor.is_complex())) {
    return std::nullopt;
  }
  const at::Tensor values = tensor.is_complex() ? at::view_as_real(tensor) : tensor;
  const at::Tensor bad = values.isfinite().logical_not_();
  if (!bad.any().item<bool>()) {
    return std::nullopt;
  }
  return values.masked_select(bad)[0].item<double>();
}

// NOLINTNEXTLINE(misc-no-recursion): as deep as lists of lists
std::optional<double> nonfinite_value(const c10::IValue& value) {
  if (value.isTensor()) {
    return nonfinite_value(value.toTensor());
  }
  if (value.isDouble() && !std::isfinite(value.toDouble())) {
    return value.toDouble();
  }
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (const auto found = nonfinite_value(element)) {
        return found;
      }
    }
  }
  return std::nullopt;
}

// Its result is not a value yet.
bool leaves_memory_unset(std::string_view name) {
  for (const std::string_view prefix : {"empty", "new_empty", "resize", "set_"}) {
    if (name.starts_with(prefix)) {
      return true;
    }
  }
  return false;
}

std::string_view without_namespace(std::string_view name) {
  constexpr std::string_view kAten = "aten::";
  return name.starts_with(kAten) ? name.substr(kAten.size()) : name;
}

// Whether an argument is only written to: its memory may hold anything before.
bool is_destination(const at::RecordFunction& function, std::string_view name, size_t index) {
  if (name == "copy_" || name == "fill_" || name == "zero_") {
    return index == 0;
  }
  if (std::string_view(function.overload_name()).find("out") == std::string_view::npos) {
    return false;
  }
  const auto schema = function.operator_schema();
  return schema && index < schema->arguments().size() && schema->arguments()[index].is_out();
}

// What the watch itself calls is neither watched nor recorded for gradients nor cast.
struct QuietGuard {
  at::DisableRecordFunctionGuard unwatched;
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowAutograd below;
};

bool inputs_are_finite(const at::RecordFunction& function, std::string_view name) {
  const QuietGuard quiet;
  const auto inputs = function.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_destination(function, name, i) && nonfinite_value(inputs[i])) {
      return false;
    }
  }
  return true;
}

}  // namespace

struct NonfiniteWatch::State {
  NonfiniteOrigin origin;
  std::vector<Frame*> frames;
  std::map<int64_t, std::string> scopes;  // by sequence number of the forward operation

  void start(const at::RecordFunction& function, Frame* frame) {
    frames.push_back(frame);
    if (!origin.operation.empty()) {
      return;
    }
    frame->name = without_namespace(function.name());
    frame->is_node = function.scope() == at::RecordScope::BACKWARD_FUNCTION;
    frame->sequence = function.seqNr();
    if (!frame->is_node) {
      if (node() == nullptr && frame->sequence >= 0) {
        scopes[frame->sequence] = tensor::current_scope();
      }
      frame->inputs_are_finite = inputs_are_finite(function, frame->name);
    }
  }

  void end(const at::RecordFunction& function, const Frame* frame) {
    frames.pop_back();
    if (!origin.operation.empty() || frame->is_node || !frame->inputs_are_finite ||
        leaves_memory_unset(frame->name)) {
      return;
    }
    const QuietGuard quiet;
    for (const c10::IValue& output : function.outputs()) {
      if (const auto value = nonfinite_value(output)) {
        found(*frame, *value);
        return;
      }
    }
  }

 private:
  const Frame* node() const {
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
      if ((*frame)->is_node) {
        return *frame;
      }
    }
    return nullptr;
  }

  void found(const Frame& frame, double value) {
    origin.operation = frame.name;
    origin.value = value;
    const Frame* outermost = frames.empty() ? nullptr : frames.front();
    const Frame* backward = node();
    origin.in_backward = backward != nullptr;
    if (backward != nullptr) {
      outermost = backward;
      const auto scope = scopes.find(backward->sequence);
      origin.scope = scope == scopes.end() ? "" : scope->second;
    } else {
      origin.scope = tensor::current_scope();
    }
    if (outermost != nullptr && outermost->name != frame.name) {
      origin.within = outermost->name;
    }
  }
};

namespace {

NonfiniteWatch::State*& watch_of_this_thread() {
  static thread_local NonfiniteWatch::State* state = nullptr;
  return state;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  auto frame = std::make_unique<Frame>();
  if (watch_of_this_thread() == nullptr) {
    return nullptr;
  }
  watch_of_this_thread()->start(function, frame.get());
  return frame;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (watch_of_this_thread() != nullptr && context != nullptr) {
    watch_of_this_thread()->end(function, static_cast<Frame*>(context));
  }
}

}  // namespace

NonfiniteWatch::NonfiniteWatch() : state_(std::make_unique<State>()) {
  MANTISSA_CHECK(watch_of_this_thread() == nullptr, InvalidArgument,
                 "NonfiniteWatch: this thread has one already; end it first");
  watch_of_this_thread() = state_.get();
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&on_start, &on_end)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

NonfiniteWatch::~NonfiniteWatch() {
  at::removeCallback(handle_);
  watch_of_this_thread() = nullptr;
}

const NonfiniteOrigin& NonfiniteWatch::origin() const { return state_->origin; }

}  // namespace mantissa::amp
