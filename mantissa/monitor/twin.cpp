#include "mantissa/monitor/twin.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/monitor/gradients_aside.h"
#include "mantissa/monitor/trace.h"
#include "mantissa/monitor/twin_numbers.h"
#include "mantissa/monitor/value_sources.h"

namespace mantissa::monitor {
namespace {

constexpr double kDeadShare = 0.5;

using Key = std::tuple<TwinPlace, std::string, std::string>;  // place, scope, operation

// What a step called, in order.
struct Value {
  Key key;
  at::Tensor tensor;  // a copy
};

bool returns_views(const TracedCall& call) {
  const auto& returns = call.operation->schema().returns();
  return std::any_of(returns.begin(), returns.end(), is_view);
}

// Nodes that make no numbers of their own.
bool passes_on(const std::string& node) {
  return is_view_node(node) || node.find("AccumulateGrad") != std::string::npos ||
         node == "mantissa::CastBackward" || node.starts_with("CloneBackward") ||
         node.starts_with("ToCopyBackward");
}

bool is_copy(const TracedCall& call) {
  const std::string name = base_name(call);
  return name == "to" || name == "_to_copy" || name == "copy" || name == "clone" ||
         name == "contiguous";
}

// The value of a call that is compared, undefined for others.
Value value_of(const TracedCall& call) {
  if (!call.operation) {
    const bool arrives = call.in_backward && !call.inputs.empty() && call.inputs[0].isTensor();
    if (!arrives || passes_on(call.name) || !holds_reals(call.inputs[0].toTensor())) {
      return {};
    }
    return {{TwinPlace::backward, call.scope, call.name}, call.inputs[0].toTensor()};
  }
  const at::Tensor made = result(call);
  if (call.in_backward || call.outer != nullptr || !holds_reals(made) || returns_views(call) ||
      is_copy(call) || tensors_in(call.inputs).empty()) {
    return {};
  }
  return {{TwinPlace::forward, call.scope, call.name}, made};
}

// Forward and backward from `point`; `visit` sees the calls of the model, and gradients are those
// of `scale` times the loss when `end` is called.
void run(const ReplayPoint& point, const tensor::ParameterList& parameters, double scale,
         const std::function<at::Tensor()>& loss,
         const std::function<void(const TracedCall&)>& visit, const std::function<void()>& end) {
  const ReplayPoint::Guard generator(point);
  const GradientsAside aside(parameters);
  trace_calls(
      [&] {
        const at::Tensor value = loss();
        MANTISSA_CHECK(value.defined() && value.numel() == 1 && value.requires_grad(),
                       InvalidArgument,
                       "compare_with_twin: the loss is not one value with a gradient; return the "
                       "loss that backward() was called on");
        // Not a product with the scale, which would be an operation of the step.
        const at::Tensor wide = value.to(at::kFloat);
        wide.backward(at::full(wide.sizes(), scale, wide.options()));
      },
      visit);
  const at::NoGradGuard no_grad;
  end();
}

std::string percent(double share) { return text(std::round(1000 * share) / 10) + " %"; }

std::optional<FirstDivergence> divergence(const TwinRow& row, size_t index, double limit) {
  if (row.nonfinite > 0) {
    return FirstDivergence{index, Divergence::nonfinite,
                           concat(row.nonfinite, " numbers are not finite where FP32 is")};
  }
  if (row.place != TwinPlace::forward && row.zeros >= kDeadShare) {
    return FirstDivergence{index, Divergence::underflow,
                           concat(percent(row.zeros), " of its numbers are 0 where FP32 is not")};
  }
  if (row.own_error && row.bound && *row.own_error > *row.bound) {
    return FirstDivergence{index, Divergence::own_error,
                           concat("its own error is ", percent(*row.own_error), ", and ",
                                  row.format, " explains ", percent(*row.bound))};
  }
  if (row.relative_error > limit) {
    std::string why = concat("its error is ", percent(row.relative_error));
    if (row.input_error) {
      why += concat(", that of its inputs ", percent(*row.input_error));
    }
    return FirstDivergence{index, Divergence::error, why};
  }
  return std::nullopt;
}

/// Rows of a step, beside the values of its twin.
class Comparison {
 public:
  Comparison(const tensor::ParameterList& parameters, const TwinOptions& options)
      : parameters_(parameters), options_(options), sources_(parameters) {}

  void visit_twin(const TracedCall& call) {
    const Value value = value_of(call);
    if (value.tensor.defined()) {
      twin_[value.key].push_back(value.tensor.clone());
    }
  }

  void end_twin() {
    for (const tensor::Parameter& parameter : parameters_) {
      twin_gradients_.push_back(parameter.value.grad());
    }
  }

  void visit(const TracedCall& call) {
    const bool is_kernel = call.outer != nullptr && call.outer->outer == nullptr &&
                           call.outer->name == call.name && !call.in_backward;
    if (call.operation && is_kernel) {
      own_ = TwinRow();
      judge_own_error(own_, call);  // of the outer call, on the inputs that a region made
    }
    sources_.visit(call);
    const Value value = value_of(call);
    if (!value.tensor.defined()) {
      return;
    }
    TwinRow row;
    std::tie(row.place, row.scope, row.operation) = value.key;
    if (row.place == TwinPlace::forward) {
      if (call.is_recast) {
        row.own_error = own_.own_error;
        row.bound = own_.bound;
      } else {
        judge_own_error(row, call);
      }
      row.input_error = input_error(call);
    }
    const TwinPlace place = row.place;
    const std::optional<double> error = add(std::move(row), value);
    if (place == TwinPlace::forward) {
      errors_[sources_.num_calls()] = error;
    }
  }

  void end() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& gradient = parameters_[i].value.grad();
      const at::Tensor& reference = twin_gradients_[i];
      if (gradient.defined() != reference.defined()) {
        ++report_.unmatched;
      } else if (gradient.defined() && holds_reals(gradient)) {
        TwinRow row;
        row.place = TwinPlace::parameter;
        row.operation = parameters_[i].name;
        compare(row, gradient, reference);
      }
    }
  }

  TwinReport finish() {
    for (size_t i = 0; i < report_.rows.size() && !report_.first; ++i) {
      report_.first = divergence(report_.rows[i], i, options_.limit);
    }
    for (const auto& [key, values] : twin_) {
      report_.unmatched += static_cast<int64_t>(values.size() - taken_[key]);
    }
    return std::move(report_);
  }

 private:
  // The error of the value; nothing where the twin has none beside it.
  std::optional<double> add(TwinRow row, const Value& value) {
    const auto found = twin_.find(value.key);
    size_t& taken = taken_[value.key];
    if (found == twin_.end() || taken >= found->second.size() ||
        found->second[taken].sizes() != value.tensor.sizes()) {
      ++report_.unmatched;
      return std::nullopt;
    }
    return compare(std::move(row), value.tensor, found->second[taken++]);
  }

  double compare(TwinRow row, const at::Tensor& value, const at::Tensor& reference) {
    row.format = format_name(value);
    const double scale = row.place == TwinPlace::forward ? 1 : options_.scale;
    compare_values(row, value.to(at::kDouble).div(scale), reference, options_.format);
    report_.rows.push_back(std::move(row));
    return report_.rows.back().relative_error;
  }

  // Nothing as well where one of them was not compared: it may have the largest.
  std::optional<double> input_error(const TracedCall& call) const {
    std::optional<double> largest;
    for (const at::Tensor& input : tensors_in(call.inputs)) {
      const ValueSource* source = input.defined() ? sources_.find(input) : nullptr;
      const auto error = source == nullptr ? errors_.end() : errors_.find(source->number);
      if (error == errors_.end()) {
        continue;
      }
      if (!error->second) {
        return std::nullopt;
      }
      largest = std::max(largest.value_or(0), *error->second);
    }
    return largest;
  }

  const tensor::ParameterList& parameters_;
  const TwinOptions& options_;
  ValueSources sources_;
  std::map<int64_t, std::optional<double>> errors_;  // by the number of the call; none: unmatched
  std::map<Key, std::vector<at::Tensor>> twin_;
  std::map<Key, size_t> taken_;
  std::vector<at::Tensor> twin_gradients_;
  TwinRow own_;
  TwinReport report_;
};

}  // namespace

std::string_view to_string(TwinPlace place) {
  switch (place) {
    case TwinPlace::forward:
      return "forward";
    case TwinPlace::backward:
      return "backward";
    case TwinPlace::parameter:
      return "parameter";
  }
  MANTISSA_ASSERT(false);
}

std::string_view to_string(Divergence divergence) {
  switch (divergence) {
    case Divergence::nonfinite:
      return "nonfinite";
    case Divergence::own_error:
      return "own_error";
    case Divergence::error:
      return "error";
    case Divergence::underflow:
      return "underflow";
  }
  MANTISSA_ASSERT(false);
}

TwinReport compare_with_twin(const ReplayPoint& point, const tensor::ParameterList& parameters,
                             const std::function<at::Tensor()>& loss,
                             const std::function<at::Tensor()>& twin, const TwinOptions& options) {
  MANTISSA_CHECK(std::isfinite(options.scale) && options.scale > 0, InvalidArgument,
                 "compare_with_twin: scale is ", options.scale, "; pass that of the step");
  Comparison comparison(parameters, options);
  run(
      point, parameters, 1, twin, [&](const TracedCall& call) { comparison.visit_twin(call); },
      [&] { comparison.end_twin(); });
  run(
      point, parameters, options.scale, loss,
      [&](const TracedCall& call) { comparison.visit(call); }, [&] { comparison.end(); });
  return comparison.finish();
}

std::vector<TwinRow> dead_gradients(const TwinReport& report) {
  std::vector<TwinRow> dead;
  for (const TwinRow& row : report.rows) {
    if (row.place == TwinPlace::parameter && row.zeros >= kDeadShare) {
      dead.push_back(row);
    }
  }
  return dead;
}

}  // namespace mantissa::monitor
