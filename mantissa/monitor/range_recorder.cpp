#include "mantissa/monitor/range_recorder.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <mutex>
#include <string_view>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include "mantissa/monitor/call_values.h"

namespace mantissa::monitor {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Adds the time of its life.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total) {}
  ~Stopwatch() { total_ += seconds_since(start_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total_;
  Clock::time_point start_ = Clock::now();
};

template <size_t size>
bool is_among(const std::array<std::string_view, size>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A number of the code beside tensors, as infinity in `x != infinity`, in the format of those.
bool is_number_of_code(const TracedCall& call) {
  const std::vector<at::Tensor> inputs = tensors_in(call.inputs);
  return is_cast(call) && std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& input) {
           return input.unsafeGetTensorImpl()->is_wrapped_number();
         });
}

// Memory of any content, and constants: nothing was computed.
bool computes_nothing(const TracedCall& call) {
  static constexpr std::array<std::string_view, 14> kNames = {
      "set",       "zero", "zeros", "zeros_like", "ones",          "ones_like", "full",
      "full_like", "fill", "eye",   "rand",       "scalar_tensor", "arange",    "detach"};
  const std::string name = base_name(call);
  return name.find("empty") != std::string::npos || name.find("resize") != std::string::npos ||
         is_among(kNames, name) || is_number_of_code(call);
}

// The rounded result of an emulated operation (amp::Emulation) is counted as that of the operation.
bool is_rounding(const TracedCall& call) { return call.name == "mantissa::round_to"; }

// Of a call at its end: a sum is finite only if all its terms are.
bool may_be_nonfinite(const TracedCall& call) {
  if (call.operation && computes_nothing(call)) {
    return false;
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (call.operation && is_view(call.operation->schema().returns()[i])) {
      continue;
    }
    for (const at::Tensor& tensor : tensors_in({call.outputs[i]})) {
      if (holds_reals(tensor) && !std::isfinite(tensor.sum(at::kFloat).item<float>())) {
        return true;
      }
    }
  }
  return false;
}

// A gradient passes through them as it is.
bool passes_on(std::string_view node) {
  return is_view_node(node) || node.starts_with("ReshapeBackward") ||
         node.starts_with("DetachBackward") || node.starts_with("UnfoldBackward");
}

// `blocks.0.mlp.up.weight`: scope `blocks.0.mlp.up`, name `weight`.
std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? std::make_pair(std::string(), path)
                                  : std::make_pair(path.substr(0, dot), path.substr(dot + 1));
}

}  // namespace

RangeRecorder::RangeRecorder(RangeOptions options) : options_(std::move(options)) {
  {
    const Stopwatch stopwatch(own_cost_s_);
    const at::NoGradGuard no_grad;
    for (const tensor::Parameter& parameter : options_.parameters) {
      const auto [scope, name] = split_path(parameter.name);
      ranges_.add(ValueKind::weight, scope, name, parameter.value);
      if (options_.updates) {
        before_.push_back(value_of(parameter).clone());
      }
    }
  }
  trace_ = std::make_unique<Trace>([this](const TracedCall& call) { visit(call); });
  hook_parameters();
}

RangeRecorder::~RangeRecorder() { unhook_parameters(); }

at::Tensor RangeRecorder::value_of(const tensor::Parameter& parameter) const {
  return options_.master ? options_.master(parameter) : parameter.value.detach();
}

void RangeRecorder::hook_parameters() {
  for (const tensor::Parameter& parameter : options_.parameters) {
    if (!parameter.value.requires_grad()) {
      continue;
    }
    const auto [scope, name] = split_path(parameter.name);
    const unsigned hook = parameter.value.register_hook(
        [this, scope = scope, name = name](const at::Tensor& gradient) {
          const std::scoped_lock lock(mutex_);
          const Stopwatch stopwatch(own_cost_s_);
          const at::NoGradGuard no_grad;
          const at::RecordFunctionGuard no_record(false);
          ranges_.add(ValueKind::gradient, scope, name, gradient);
        });
    hooks_.emplace_back(parameter.value, hook);
  }
}

void RangeRecorder::unhook_parameters() {
  for (const auto& [parameter, hook] : hooks_) {
    parameter.remove_hook(hook);
  }
  hooks_.clear();
}

void RangeRecorder::finish() {
  unhook_parameters();
  trace_->finish();
  const Stopwatch stopwatch(own_cost_s_);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < before_.size(); ++i) {
    const tensor::Parameter& parameter = options_.parameters[i];
    const auto [scope, name] = split_path(parameter.name);
    const at::Tensor now = value_of(parameter);
    ranges_.add(ValueKind::update, scope, name, now.to(at::kFloat).sub(before_[i].to(at::kFloat)));
  }
  before_.clear();
}

double RangeRecorder::cost_s() const { return own_cost_s_ + trace_->cost_s(); }

void RangeRecorder::visit(const TracedCall& call) {
  const std::scoped_lock lock(mutex_);
  if (!call.operation) {
    visit_node(call);
  } else if (!call.in_backward && at::GradMode::is_enabled()) {
    visit_forward(call);
  }
  if (search_.has_suspect() || may_be_nonfinite(call)) {
    search_.visit(call);
  }
}

void RangeRecorder::visit_forward(const TracedCall& call) {
  std::vector<const void*> within;
  if (auto node = made_within_.extract(&call)) {
    within = std::move(node.mapped());
  }
  const auto& results = call.operation->schema().returns();
  const size_t counted = computes_nothing(call) || is_rounding(call) ? 0 : call.outputs.size();
  for (size_t i = 0; i < counted; ++i) {
    if (is_view(results[i])) {
      continue;
    }
    const std::string name = i == 0 ? call.name : call.name + "[" + std::to_string(i) + "]";
    for (const at::Tensor& tensor : tensors_in({call.outputs[i]})) {
      if (!holds_reals(tensor)) {
        continue;
      }
      const void* memory = tensor.const_data_ptr();
      if (std::find(within.begin(), within.end(), memory) == within.end()) {
        ranges_.add(ValueKind::activation, call.scope, name, tensor);
        within.push_back(memory);
      }
    }
  }
  if (call.outer != nullptr) {
    std::vector<const void*>& outer = made_within_[call.outer];
    outer.insert(outer.end(), within.begin(), within.end());
  }
}

void RangeRecorder::visit_node(const TracedCall& node) {
  const bool is_leaf = node.name.find("AccumulateGrad") != std::string::npos;
  if (passes_on(node.name) || (is_leaf && !options_.parameters.empty())) {
    return;
  }
  for (const at::Tensor& gradient : tensors_in(node.inputs)) {
    ranges_.add(ValueKind::gradient, node.scope, node.name, gradient);
  }
}

}  // namespace mantissa::monitor
