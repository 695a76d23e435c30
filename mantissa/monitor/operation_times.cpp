#include "mantissa/monitor/operation_times.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::monitor {
namespace {

using Values = std::span<const c10::IValue>;

// One event while it lasts. Labels, such as those of the engine, have no row.
struct Frame : at::ObserverContext {
  Frame* outer = nullptr;
  bool has_row = false;
  bool is_node = false;
  bool is_recast = false;  // the operation was called again with other arguments, as by autocast
  size_t num_results = 0;
  std::optional<c10::OperatorName> name;
  std::string thread_scope;  // of the thread when it began
  OperationTime row;
  double seen_s = 0;                 // when its event was seen
  double begin_s = 0;                // when it went on from there
  double inside_s = 0;               // of events within, with looking at them
  std::vector<OperationTime> parts;  // of a product or cast: rows of what it called
};

thread_local Frame* innermost = nullptr;

bool is_whole(const Frame& frame) {
  return frame.row.kind == OperationKind::product || frame.row.kind == OperationKind::cast;
}

template <typename Visit>
void for_each_tensor(Values values, const Visit& visit) {
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) {
      visit(value.toTensor());
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor() && element.toTensor().defined()) {
          visit(element.toTensor());
        }
      }
    }
  }
}

// Numbers that are no more than a scale or a count say nothing of what a kernel works in.
std::string format_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::string> names;
  for (const bool with_numbers : {false, true}) {
    for (const at::Tensor& tensor : tensors) {
      const bool counts = tensor.is_floating_point() && (with_numbers || tensor.numel() > 1);
      if (counts && std::find(names.begin(), names.end(), format_name(tensor)) == names.end()) {
        names.push_back(format_name(tensor));
      }
    }
    if (!names.empty()) {
      break;
    }
  }
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : " ") + name;
  }
  return text;
}

bool is_view_of_arguments(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) { return is_view(result); });
}

// Writes its first argument and does not read it.
bool overwrites(const std::string& name) {
  return name == "aten::copy_" || name == "aten::fill_" || name == "aten::zero_";
}

using Key = std::tuple<Phase, std::string, std::string, std::string, OperationKind, std::string,
                       bool, bool>;

Key key_of(const OperationTime& row) {
  return {row.phase, row.scope,  row.operation, row.within,
          row.kind,  row.format, row.on_cpu,    row.is_aligned};
}

}  // namespace

class OperationTimes::Observer {
 public:
  explicit Observer(const TimeSplit* phases) : phases_(phases) {}

  static std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& event);
  static void on_end(const at::RecordFunction& event, at::ObserverContext* context);

  static std::atomic<Observer*> active;

  std::vector<OperationTime> rows() const;
  double look_s(Phase phase) const { return look_s_[static_cast<size_t>(phase)].load(); }

 private:
  void begin(const at::RecordFunction& event, Frame& frame);
  void begin_operation(const at::RecordFunction& event, Frame& frame);
  void begin_node(const at::RecordFunction& event, Frame& frame);
  void end(const at::RecordFunction& event, Frame& frame, double total_s);
  void add(Frame* outer, OperationTime row);

  // RecordFunction logs what a callback throws and goes on.
  template <typename Work>
  void observe(const Work& work) {
    try {
      work();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      exception_ = exception_ ? exception_ : std::current_exception();
    }
  }

  struct ForwardCall {
    std::string scope;
    std::string within;
  };

  const TimeSplit* phases_;
  mutable std::mutex mutex_;
  std::map<Key, OperationTime> rows_;
  std::map<std::pair<uint64_t, int64_t>, ForwardCall> forward_;  // by thread and sequence number
  std::array<std::atomic<double>, kPhases.size()> look_s_{};
  std::exception_ptr exception_;
};

std::atomic<OperationTimes::Observer*> OperationTimes::Observer::active = nullptr;

void OperationTimes::Observer::begin(const at::RecordFunction& event, Frame& frame) {
  OperationTime& row = frame.row;
  row.phase = phases_ == nullptr ? Phase::other : phases_->current();
  row.operation = event.name();
  row.scope = frame.thread_scope = tensor::current_scope();
  if (frame.outer != nullptr) {
    row.within = frame.outer->row.within;
    if (frame.thread_scope == frame.outer->thread_scope) {
      row.scope = frame.outer->row.scope;  // a node has that of its forward call
    }
  }
  if (event.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    begin_node(event, frame);
  } else if (event.operator_name()) {
    begin_operation(event, frame);
  }
}

void OperationTimes::Observer::begin_node(const at::RecordFunction& event, Frame& frame) {
  frame.has_row = frame.is_node = true;
  frame.row.calls = 1;
  frame.row.operation = node_name(event.name());
  const std::scoped_lock lock(mutex_);
  const auto found = forward_.find({event.forwardThreadId(), event.seqNr()});
  if (found != forward_.end()) {
    frame.row.scope = found->second.scope;
    frame.row.within = found->second.within;
  }
}

void OperationTimes::Observer::begin_operation(const at::RecordFunction& event, Frame& frame) {
  const auto operation = c10::Dispatcher::singleton().findSchema(*event.operator_name());
  if (!operation) {
    return;
  }
  OperationTime& row = frame.row;
  frame.has_row = true;
  frame.name = operation->operator_name();
  frame.num_results = operation->schema().returns().size();
  row.calls = 1;
  if (row.within.empty()) {
    row.within = row.operation;
  }
  if (event.seqNr() >= 0) {
    const std::scoped_lock lock(mutex_);
    forward_[{event.threadId(), event.seqNr()}] = {row.scope, row.within};
  }
  if (frame.outer != nullptr && frame.outer->name == frame.name) {
    frame.outer->is_recast = true;
  }
  // Of a boxed call they are the whole stack.
  const size_t count = operation->schema().arguments().size();
  const Values inputs = Values(event.inputs().data(), event.inputs().size()).last(count);
  const OperationCost cost = operation_cost(row.operation, inputs);
  row.kind = is_view_of_arguments(operation->schema()) ? OperationKind::view : cost.kind;
  row.flops = cost.flops;
  row.is_aligned = cost.is_aligned;
  std::vector<at::Tensor> worked_on;
  if (row.kind == OperationKind::product) {
    for (const size_t factor : cost.factors) {
      worked_on.push_back(inputs[factor].toTensor());
    }
  } else {
    for_each_tensor(inputs, [&](const at::Tensor& tensor) { worked_on.push_back(tensor); });
  }
  row.format = format_of(worked_on);
  row.on_cpu = std::all_of(worked_on.begin(), worked_on.end(),
                           [](const at::Tensor& tensor) { return tensor.is_cpu(); });
  if (row.kind != OperationKind::view) {
    row.bytes = tensor_bytes(overwrites(row.operation) ? inputs.subspan(1) : inputs);
  }
}

// To the product or cast that it is a part of, or to the table.
void OperationTimes::Observer::add(Frame* outer, OperationTime row) {
  for (Frame* frame = outer; frame != nullptr; frame = frame->outer) {
    if (frame->has_row && is_whole(*frame)) {
      frame->parts.push_back(std::move(row));
      return;
    }
  }
  const std::scoped_lock lock(mutex_);
  const auto [place, is_new] = rows_.try_emplace(key_of(row), row);
  if (!is_new) {
    OperationTime& sum = place->second;
    sum.calls += row.calls;
    sum.time_s += row.time_s;
    sum.flops += row.flops;
    sum.bytes += row.bytes;
  }
}

void OperationTimes::Observer::end(const at::RecordFunction& event, Frame& frame, double total_s) {
  if (!frame.has_row) {
    return;
  }
  OperationTime& row = frame.row;
  row.time_s = std::max(0.0, total_s - frame.inside_s);
  if (frame.is_node) {
    if (frame.outer != nullptr && !frame.outer->has_row) {
      frame.outer->row.scope = row.scope;  // of what the engine does with the gradients
      frame.outer->row.within = row.within;
    }
  } else if (frame.is_recast) {
    row.operation = "autocast";
    row.kind = OperationKind::other;
    row.format.clear();
    row.flops = row.bytes = 0;
    row.is_aligned = true;
    for (OperationTime& part : std::exchange(frame.parts, {})) {
      add(frame.outer, std::move(part));
    }
  } else {
    const Values results = event.outputs();
    if (row.kind != OperationKind::view && results.size() >= frame.num_results) {
      row.bytes += tensor_bytes(results.last(frame.num_results));
    }
    for (const OperationTime& part : frame.parts) {
      row.time_s += part.time_s;
    }
  }
  add(frame.outer, std::move(row));
}

std::unique_ptr<at::ObserverContext> OperationTimes::Observer::on_begin(
    const at::RecordFunction& event) {
  Observer* observer = active;
  if (observer == nullptr) {
    return nullptr;
  }
  const double seen_s = steady_seconds();
  auto frame = std::make_unique<Frame>();
  frame->seen_s = seen_s;
  frame->outer = innermost;
  innermost = frame.get();
  observer->observe([&] { observer->begin(event, *frame); });
  frame->begin_s = steady_seconds();
  return frame;
}

void OperationTimes::Observer::on_end(const at::RecordFunction& event,
                                      at::ObserverContext* context) {
  auto* frame = static_cast<Frame*>(context);
  if (frame == nullptr) {
    return;
  }
  const double end_s = steady_seconds();
  innermost = frame->outer;
  Observer* observer = active;
  if (observer == nullptr) {
    return;
  }
  const Phase phase = frame->row.phase;
  observer->observe([&] { observer->end(event, *frame, end_s - frame->begin_s); });
  const double done_s = steady_seconds();
  if (frame->outer != nullptr) {
    frame->outer->inside_s += done_s - frame->seen_s;
  }
  const double look_s = frame->begin_s - frame->seen_s + (done_s - end_s);
  std::atomic<double>& sum = observer->look_s_[static_cast<size_t>(phase)];
  for (double before = sum; !sum.compare_exchange_weak(before, before + look_s);) {
  }
}

std::vector<OperationTime> OperationTimes::Observer::rows() const {
  const std::scoped_lock lock(mutex_);
  if (exception_) {
    std::rethrow_exception(exception_);
  }
  std::vector<OperationTime> rows;
  rows.reserve(rows_.size());
  for (const auto& [key, row] : rows_) {
    rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const OperationTime& a, const OperationTime& b) {
    return a.time_s > b.time_s;
  });
  return rows;
}

OperationTimes::OperationTimes(const TimeSplit* phases)
    : observer_(std::make_unique<Observer>(phases)) {
  Observer* none = nullptr;
  MANTISSA_CHECK(Observer::active.compare_exchange_strong(none, observer_.get()), InvalidArgument,
                 "operation times: another step is being timed; time one after the other");
  // Of this thread; LibTorch hands it on to the threads of its backward passes.
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(Observer::on_begin, Observer::on_end)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

OperationTimes::~OperationTimes() { stop(); }

void OperationTimes::stop() {
  if (handle_) {
    at::removeCallback(*handle_);
    handle_.reset();
    Observer::active = nullptr;
  }
}

std::vector<OperationTime> OperationTimes::finish() {
  stop();
  return observer_->rows();
}

double OperationTimes::look_s(Phase phase) const { return observer_->look_s(phase); }

}  // namespace mantissa::monitor
