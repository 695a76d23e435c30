#include "mantissa/monitor/trace.h"

#include <atomic>
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

class Tracer {
 public:
  explicit Tracer(const std::function<void(const TracedCall&)>& visit) : visit_(visit) {}

  void begin(const at::RecordFunction& event, Frame& frame);
  void end(const at::RecordFunction& event, Frame& frame);

  void rethrow() const {
    if (exception_) {
      std::rethrow_exception(exception_);
    }
  }

  // RecordFunction logs what a callback throws and goes on.
  template <typename Work>
  void keep_exception(const Work& work) {
    try {
      work();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!exception_) {
        exception_ = std::current_exception();
      }
    }
  }

 private:
  void begin_operation(const at::RecordFunction& event, Frame& frame);
  void begin_node(const at::RecordFunction& event, Frame& frame);

  const std::function<void(const TracedCall&)>& visit_;
  std::mutex mutex_;
  std::map<std::pair<uint64_t, int64_t>, std::string> scopes_;  // by thread and sequence number
  std::exception_ptr exception_;
};

std::atomic<Tracer*> active = nullptr;

void Tracer::begin(const at::RecordFunction& event, Frame& frame) {
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

void Tracer::begin_node(const at::RecordFunction& event, Frame& frame) {
  frame.is_node = true;
  frame.call.in_backward = true;
  frame.call.inputs.assign(event.inputs().begin(), event.inputs().end());
  const std::scoped_lock lock(mutex_);
  const auto found = scopes_.find({event.forwardThreadId(), event.seqNr()});
  if (found != scopes_.end()) {
    frame.call.scope = found->second;  // not the one in which backward() was called
  }
}

void Tracer::begin_operation(const at::RecordFunction& event, Frame& frame) {
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

void Tracer::end(const at::RecordFunction& event, Frame& frame) {
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

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& event) {
  Tracer* tracer = active;
  if (tracer == nullptr) {
    return nullptr;
  }
  auto frame = std::make_unique<Frame>();
  frame->outer = innermost;
  innermost = frame.get();
  tracer->keep_exception([&] { tracer->begin(event, *frame); });
  return frame;
}

void on_end(const at::RecordFunction& event, at::ObserverContext* context) {
  auto* frame = static_cast<Frame*>(context);
  if (frame == nullptr) {
    return;
  }
  innermost = frame->outer;
  if (Tracer* tracer = active) {
    tracer->keep_exception([&] { tracer->end(event, *frame); });
  }
}

// Callbacks of this thread, which LibTorch hands on to the threads of its backward passes.
class Observation {
 public:
  explicit Observation(Tracer& tracer) {
    Tracer* none = nullptr;
    MANTISSA_CHECK(active.compare_exchange_strong(none, &tracer), InvalidArgument,
                   "trace_calls: another step is being traced; trace one after the other");
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(on_begin, on_end)
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }

  ~Observation() {
    at::removeCallback(handle_);
    active = nullptr;
  }

  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

 private:
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
};

}  // namespace

void trace_calls(const std::function<void()>& step,
                 const std::function<void(const TracedCall&)>& visit) {
  Tracer tracer(visit);
  {
    const Observation observation(tracer);
    step();
  }
  tracer.rethrow();
}

}  // namespace mantissa::monitor
