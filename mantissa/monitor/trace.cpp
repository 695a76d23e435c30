#include "mantissa/monitor/trace.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::monitor {
namespace {

using Values = std::span<const c10::IValue>;

// One event while it lasts. Operations and nodes are visited; labels, such as those of the engine,
// only say where their calls are.
struct Frame : at::ObserverContext {
  bool is_label = false;
  bool is_node = false;
  Frame* outer = nullptr;
  std::string thread_scope;  // of the thread when it began
  TracedCall call;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> made;  // of a node, and not taken since
};

thread_local Frame* innermost = nullptr;

// Operations called under it are not traced and run as bare kernels.
class Untraced {
 private:
  at::RecordFunctionGuard no_record_{false};
  at::AutoDispatchBelowADInplaceOrView no_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

template <typename Visit>
void for_each_tensor(Values values, const Visit& visit) {
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) {
      visit(value.toTensor());
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor() && element.toTensor().defined()) {
          visit(element.toTensor());
        }
      }
    }
  }
}

bool makes_uninitialized(const std::string& name) {
  return name.find("empty") != std::string::npos || name.find("resize") != std::string::npos;
}

}  // namespace

class Trace::Tracer {
 public:
  explicit Tracer(std::function<void(const TracedCall&)> visit) : visit_(std::move(visit)) {}

  static std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& event);
  static void on_end(const at::RecordFunction& event, at::ObserverContext* context);

  static std::atomic<Tracer*> active;

  void rethrow() const {
    if (exception_) {
      std::rethrow_exception(exception_);
    }
  }

  double cost_s() const { return 1e-9 * static_cast<double>(cost_ns_.load()); }

  // RecordFunction logs what a callback throws and goes on.
  template <typename Work>
  void observe(const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    try {
      work();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!exception_) {
        exception_ = std::current_exception();
      }
    }
    const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - start;
    cost_ns_ += taken.count();
  }

 private:
  void begin(const at::RecordFunction& event, Frame& frame);
  void end(const at::RecordFunction& event, Frame& frame);
  void begin_operation(const at::RecordFunction& event, Frame& frame);
  void begin_node(const at::RecordFunction& event, Frame& frame);

  std::function<void(const TracedCall&)> visit_;
  std::atomic<int64_t> cost_ns_ = 0;
  std::mutex mutex_;
  std::map<std::pair<uint64_t, int64_t>, std::string> scopes_;  // by thread and sequence number
  std::exception_ptr exception_;
};

std::atomic<Trace::Tracer*> Trace::Tracer::active = nullptr;

void Trace::Tracer::begin(const at::RecordFunction& event, Frame& frame) {
  TracedCall& call = frame.call;
  call.name = event.name();
  call.scope = frame.thread_scope = tensor::current_scope();
  if (frame.outer != nullptr) {
    const Frame& outer = *frame.outer;
    call.in_backward = outer.call.in_backward;
    call.node = outer.is_node ? outer.call.name : outer.call.node;
    call.outer = outer.is_label ? outer.call.outer : &outer.call;
    call.after_node = outer.is_label ? outer.call.after_node : "";
    if (frame.thread_scope == outer.thread_scope) {
      call.scope = outer.call.scope;  // a node has that of its forward call
    }
  }
  if (event.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    begin_node(event, frame);
  } else if (const auto name = event.operator_name()) {
    call.operation = c10::Dispatcher::singleton().findSchema(*name);
    frame.is_label = !call.operation.has_value();
    if (call.operation) {
      begin_operation(event, frame);
    }
  } else {
    frame.is_label = true;
    call.in_backward |= call.name.starts_with("autograd::engine::evaluate_function");
  }
}

void Trace::Tracer::begin_node(const at::RecordFunction& event, Frame& frame) {
  frame.is_node = true;
  frame.call.name = node_name(event.name());
  frame.call.in_backward = true;
  frame.call.inputs.assign(event.inputs().begin(), event.inputs().end());
  const std::scoped_lock lock(mutex_);
  const auto found = scopes_.find({event.forwardThreadId(), event.seqNr()});
  if (found != scopes_.end()) {
    frame.call.scope = found->second;  // not the one in which backward() was called
  }
}

void Trace::Tracer::begin_operation(const at::RecordFunction& event, Frame& frame) {
  TracedCall& call = frame.call;
  const auto& arguments = call.operation->schema().arguments();
  // Of a boxed call they are the whole stack.
  const Values inputs = Values(event.inputs().data(), event.inputs().size()).last(arguments.size());
  if (event.seqNr() >= 0) {
    const std::scoped_lock lock(mutex_);
    scopes_[{event.threadId(), event.seqNr()}] = call.scope;
  }
  if (Frame* outer = frame.outer; outer != nullptr && outer->call.name == call.name) {
    outer->call.is_recast = true;
  }
  if (Frame* outer = frame.outer; outer != nullptr && outer->is_node) {
    for_each_tensor(inputs, [&](const at::Tensor& tensor) {
      if (outer->made.erase(tensor.unsafeGetTensorImpl()) == 0) {
        outer->call.saved.push_back(tensor);
      }
    });
  }
  call.inputs.assign(inputs.begin(), inputs.end());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_written = arguments[i].alias_info() != nullptr &&
                            arguments[i].alias_info()->isWrite() && call.inputs[i].isTensor();
    if (is_written && call.inputs[i].toTensor().defined() &&
        call.inputs[i].toTensor().is_floating_point()) {
      const Untraced untraced;
      call.inputs[i] = call.inputs[i].toTensor().clone();
    }
  }
}

void Trace::Tracer::end(const at::RecordFunction& event, Frame& frame) {
  if (frame.is_label) {
    return;
  }
  TracedCall& call = frame.call;
  if (frame.is_node) {
    for (const auto& [impl, tensor] : frame.made) {
      call.outputs.emplace_back(tensor);
    }
    if (frame.outer != nullptr && frame.outer->is_label) {
      frame.outer->call.scope = call.scope;  // of what the engine does with the gradients
      frame.outer->call.after_node = call.name;
    }
  } else {
    const Values results = event.outputs();
    const size_t count = call.operation->schema().returns().size();
    if (results.size() >= count) {
      call.outputs.assign(results.end() - static_cast<int64_t>(count), results.end());
    }
    if (Frame* outer = frame.outer; outer != nullptr && outer->is_node) {
      if (!makes_uninitialized(call.name)) {
        for_each_tensor(call.outputs, [&](const at::Tensor& tensor) {
          outer->made.emplace(tensor.unsafeGetTensorImpl(), tensor);
        });
      }
    }
  }
  const Untraced untraced;
  const std::scoped_lock lock(mutex_);
  if (!exception_) {
    visit_(call);
  }
}

std::unique_ptr<at::ObserverContext> Trace::Tracer::on_begin(const at::RecordFunction& event) {
  Tracer* tracer = active;
  if (tracer == nullptr) {
    return nullptr;
  }
  auto frame = std::make_unique<Frame>();
  frame->outer = innermost;
  innermost = frame.get();
  tracer->observe([&] { tracer->begin(event, *frame); });
  return frame;
}

void Trace::Tracer::on_end(const at::RecordFunction& event, at::ObserverContext* context) {
  auto* frame = static_cast<Frame*>(context);
  if (frame == nullptr) {
    return;
  }
  innermost = frame->outer;
  if (Tracer* tracer = active) {
    tracer->observe([&] { tracer->end(event, *frame); });
  }
}

Trace::Trace(std::function<void(const TracedCall&)> visit)
    : tracer_(std::make_unique<Tracer>(std::move(visit))) {
  Tracer* none = nullptr;
  MANTISSA_CHECK(Tracer::active.compare_exchange_strong(none, tracer_.get()), InvalidArgument,
                 "trace_calls: another step is being traced; trace one after the other");
  // Of this thread; LibTorch hands it on to the threads of its backward passes.
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(Tracer::on_begin, Tracer::on_end)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

Trace::~Trace() { stop(); }

void Trace::stop() {
  if (handle_) {
    at::removeCallback(*handle_);
    handle_.reset();
    Tracer::active = nullptr;
  }
}

void Trace::finish() {
  stop();
  tracer_->rethrow();
}

double Trace::cost_s() const { return tracer_->cost_s(); }

void trace_calls(const std::function<void()>& step,
                 const std::function<void(const TracedCall&)>& visit) {
  Trace trace(visit);
  step();
  trace.finish();
}

}  // namespace mantissa::monitor
