#include "mantissa/tensor/recompute.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "mantissa/base/error.h"
#include "mantissa/tensor/generator_state.h"
#include "mantissa/tensor/thread_state.h"

namespace mantissa::tensor {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::SavedVariableHooks;

class Recomputation;

// Ends a second call. No std::exception, which a function may catch.
struct Complete {
  const Recomputation* of;
};

// What autograd saves on this thread belongs to it.
thread_local std::shared_ptr<Recomputation> recording;

class Recording {
 public:
  explicit Recording(std::shared_ptr<Recomputation> call)
      : outer_(std::exchange(recording, std::move(call))) {}
  ~Recording() { recording = std::move(outer_); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  std::shared_ptr<Recomputation> outer_;
};

class RestoreGenerator {
 public:
  explicit RestoreGenerator(const at::Tensor& state) : before_(cpu_generator_state()) {
    set_cpu_generator_state(state);
  }
  ~RestoreGenerator() { set_cpu_generator_state(before_); }
  RestoreGenerator(const RestoreGenerator&) = delete;
  RestoreGenerator& operator=(const RestoreGenerator&) = delete;

 private:
  at::Tensor before_;
};

int64_t version_of(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_inference() ? static_cast<int64_t>(tensor._version()) : 0;
}

// Without an operation, which those who watch would see.
bool are_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

std::vector<bool> requires_grad(const Tensors& tensors) {
  std::vector<bool> result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(tensor.defined() && tensor.requires_grad());
  }
  return result;
}

/// One call of a function, and its second call. The graph of the first keeps it alive.
class Recomputation : public std::enable_shared_from_this<Recomputation> {
 public:
  Recomputation(TensorFunction function, const Tensors& inputs, const Tensors& sources,
                TensorFunction derive)
      : function_(std::move(function)),
        derive_(std::move(derive)),
        requires_grad_(requires_grad(inputs)) {
    for (const at::Tensor& source : sources) {
      sources_.emplace_back(source, /*is_output=*/false);
    }
  }

  Tensors call(const Tensors& inputs);

  // The place of a tensor that autograd saves.
  size_t add(const at::Tensor& tensor);

  // That tensor, made again.
  at::Tensor take(size_t place);

  bool ends_within(int64_t saves) const {
    return is_second_ && static_cast<int64_t>(needed_ - next_) <= saves;
  }
  bool is_second() const { return is_second_; }

 private:
  struct Parameter {
    at::Tensor value;
    int64_t version;
  };
  struct Saved {
    at::ScalarType dtype;
    c10::DimVector sizes;
    Parameter parameter;  // kept as it is, where it is one
    at::Tensor again;     // made by the second call, and not taken yet
    int64_t version_again;
  };

  void add_first(const at::Tensor& tensor);
  void add_parameters_behind(const at::Tensor& tensor);
  void add_again(const at::Tensor& tensor);
  void call_again();
  Tensors inputs_again();
  static void require_unchanged(const Parameter& parameter);

  TensorFunction function_;
  TensorFunction derive_;  // none: the sources are the inputs
  std::vector<SavedVariable> sources_;
  std::vector<bool> requires_grad_;  // by input
  ThreadState state_;
  at::Tensor generator_;  // undefined where the function draws no numbers
  std::vector<Saved> saved_;
  std::vector<Parameter> parameters_;                // that others of them were made of
  std::unordered_set<torch::autograd::Node*> seen_;  // in the first call
  size_t needed_ = 0;  // those up to the last one that is no parameter
  size_t next_ = 0;    // in the second call
  bool is_first_ = false;
  bool is_second_ = false;
  std::recursive_mutex mutex_;
};

Tensors Recomputation::call(const Tensors& inputs) {
  std::vector<int64_t> versions;
  for (const at::Tensor& input : inputs) {
    versions.push_back(version_of(input));
  }
  generator_ = cpu_generator_state();
  std::vector<torch::autograd::Edge> begins;
  for (const at::Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) {
      begins.push_back(torch::autograd::impl::gradient_edge(input));
      seen_.insert(begins.back().function.get());
    }
  }
  Tensors outputs;
  {
    const Recording recording_this(shared_from_this());
    is_first_ = true;
    outputs = function_(inputs);
    is_first_ = false;
  }
  seen_.clear();
  if (are_equal(generator_, cpu_generator_state())) {
    generator_ = at::Tensor();
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    MANTISSA_CHECK(version_of(inputs[i]) == versions[i], InvalidArgument, "recompute: input ", i,
                   " of shape ", inputs[i].sizes(),
                   " was changed in place by the function, which backward calls again; change a "
                   "clone of it");
  }
  return outputs;
}

size_t Recomputation::add(const at::Tensor& tensor) {
  if (is_second_) {
    add_again(tensor);
    return 0;
  }
  add_first(tensor);
  return saved_.size() - 1;
}

void Recomputation::add_first(const at::Tensor& tensor) {
  Saved saved = {tensor.scalar_type(), c10::DimVector(tensor.sizes()), {}, {}, 0};
  if (tensor.is_leaf() && tensor.requires_grad()) {
    saved.parameter = {tensor, version_of(tensor)};
  } else {
    needed_ = saved_.size() + 1;
    add_parameters_behind(tensor);
  }
  saved_.push_back(std::move(saved));
}

// The leaves of the graph that `tensor` was made of, between the inputs and it.
void Recomputation::add_parameters_behind(const at::Tensor& tensor) {
  std::vector<torch::autograd::Node*> nodes = {tensor.grad_fn().get()};
  while (!nodes.empty()) {
    torch::autograd::Node* const node = nodes.back();
    nodes.pop_back();
    if (node == nullptr || !seen_.insert(node).second) {
      continue;
    }
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
      parameters_.push_back({leaf->variable, version_of(leaf->variable)});
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      nodes.push_back(edge.function.get());
    }
  }
}

void Recomputation::add_again(const at::Tensor& tensor) {
  if (next_ >= needed_) {
    return;  // a function that caught what is to end it
  }
  Saved& saved = saved_[next_];
  MANTISSA_CHECK(tensor.scalar_type() == saved.dtype && tensor.sizes() == saved.sizes, Error,
                 "recompute: saved tensor ", next_, " is ", tensor.scalar_type(), " ",
                 tensor.sizes(), " in the recomputation and was ", saved.dtype, " ",
                 at::IntArrayRef(saved.sizes),
                 "; the function must compute the same when backward calls it again");
  if (!saved.parameter.value.defined()) {
    saved.again = tensor.tensor_data();
    saved.version_again = version_of(tensor);
  }
  if (++next_ == needed_) {
    throw Complete{this};
  }
}

at::Tensor Recomputation::take(size_t place) {
  const std::lock_guard lock(mutex_);
  MANTISSA_CHECK(!is_first_ && !is_second_, Unsupported,
                 "recompute: backward is called within the function, where what it needs is "
                 "dropped; call it after recompute()");
  Saved& saved = saved_[place];
  if (saved.parameter.value.defined()) {
    require_unchanged(saved.parameter);
    return saved.parameter.value;
  }
  if (!saved.again.defined()) {
    call_again();
  }
  MANTISSA_CHECK(version_of(saved.again) == saved.version_again, InvalidArgument,
                 "recompute: a tensor of shape ", saved.again.sizes(),
                 " that backward needs was changed in place by the function; change a clone of it");
  return std::exchange(saved.again, at::Tensor());
}

void Recomputation::require_unchanged(const Parameter& parameter) {
  MANTISSA_CHECK(version_of(parameter.value) == parameter.version, Error,
                 "recompute: a parameter of shape ", parameter.value.sizes(),
                 " has changed since the forward pass, which backward computes again; change "
                 "parameters after backward");
}

Tensors Recomputation::inputs_again() {
  Tensors sources;
  for (const SavedVariable& source : sources_) {
    const at::Tensor tensor = source.unpack();
    sources.push_back(tensor.defined() ? tensor.detach() : tensor);
  }
  if (!derive_) {
    return sources;
  }
  const RestoreThreadState restored(state_);
  const at::NoGradGuard no_grad;
  Tensors inputs = derive_(sources);
  MANTISSA_CHECK(inputs.size() == requires_grad_.size(), InvalidArgument, "recompute: derive gave ",
                 inputs.size(), " tensors, and the function takes ", requires_grad_.size(),
                 "; it must give the inputs");
  return inputs;
}

void Recomputation::call_again() {
  for (const Saved& saved : saved_) {
    if (saved.parameter.value.defined()) {
      require_unchanged(saved.parameter);
    }
  }
  for (const Parameter& parameter : parameters_) {
    require_unchanged(parameter);
  }
  const Recording unrecorded(nullptr);
  Tensors inputs = inputs_again();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (requires_grad_[i]) {
      inputs[i].requires_grad_();
    }
  }
  for (Saved& saved : saved_) {
    saved.again = at::Tensor();
  }
  next_ = 0;
  is_second_ = true;
  struct Finally {
    bool& is_second;
    ~Finally() { is_second = false; }
  } const finally{is_second_};
  const RestoreThreadState restored(state_);
  std::optional<RestoreGenerator> numbers;
  if (generator_.defined()) {
    numbers.emplace(generator_);
  }
  const Recording recording_this(shared_from_this());
  try {
    function_(inputs);
  } catch (const Complete& complete) {
    if (complete.of != this) {
      throw;
    }
  }
  MANTISSA_CHECK(next_ == needed_, Error, "recompute: ", next_,
                 " tensors were saved in the recomputation and ", needed_,
                 " before; the function must compute the same when backward calls it again");
}

class Hook : public SavedVariableHooks {
 public:
  explicit Hook(std::shared_ptr<Recomputation> call)
      : call_(std::move(call)), is_second_(call_->is_second()) {}

  void call_pack_hook(const at::Tensor& tensor) override { place_ = call_->add(tensor); }

  at::Tensor call_unpack_hook() override {
    MANTISSA_CHECK(!is_second_, Unsupported,
                   "recompute: backward is called within the function, where what it needs is "
                   "dropped; call it after recompute()");
    return call_->take(place_);
  }

 private:
  std::shared_ptr<Recomputation> call_;
  bool is_second_;
  size_t place_ = 0;
};

/// The engine that was, but for its hooks of saved tensors: LibTorch asks the engine for them, and
/// knows no others than Python's.
class HookedEngine : public torch::autograd::Engine {
 public:
  using Edges = torch::autograd::edge_list;

  explicit HookedEngine(Engine& engine) : engine_(engine) {}

  Tensors execute(const Edges& roots, const Tensors& inputs, bool keep_graph, bool create_graph,
                  bool accumulate_grad, const Edges& outputs) override {
    return engine_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return engine_.make_anomaly_metadata();
  }

  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return recording ? std::make_unique<Hook>(recording)
                     : engine_.get_default_saved_variable_hooks();
  }

 private:
  Engine& engine_;
};

// Never destroyed: nodes in static objects are freed after everything else.
HookedEngine* hooked_engine = nullptr;

// Again after Python has put its own in place.
void install_hooks() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::autograd::Engine& engine = torch::autograd::Engine::get_default_engine();
  if (&engine != hooked_engine) {
    hooked_engine = new HookedEngine(engine);
    torch::autograd::set_default_engine_stub(
        []() -> torch::autograd::Engine& { return *hooked_engine; });
  }
}

}  // namespace

Tensors recompute(const Tensors& inputs, const TensorFunction& function) {
  return recompute(inputs, function, inputs, nullptr);
}

at::Tensor recompute(const at::Tensor& input,
                     const std::function<at::Tensor(const at::Tensor&)>& function) {
  return recompute(Tensors{input},
                   [function](const Tensors& inputs) { return Tensors{function(inputs[0])}; })[0];
}

Tensors recompute(const Tensors& inputs, const TensorFunction& function, const Tensors& sources,
                  const TensorFunction& derive) {
  if (!at::GradMode::is_enabled()) {
    return function(inputs);
  }
  install_hooks();
  return std::make_shared<Recomputation>(function, inputs, sources, derive)->call(inputs);
}

bool recomputation_ends_within(int64_t saves) { return recording && recording->ends_within(saves); }

}  // namespace mantissa::tensor
