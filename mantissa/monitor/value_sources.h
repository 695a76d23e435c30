#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include "mantissa/monitor/trace.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::monitor {

/// What made a tensor.
struct ValueSource {
  std::string operation;  // `aten::linear`, `MmBackward0`; empty for a parameter
  std::string scope;
  bool in_backward = false;
  std::string parameter;  // its name
  int64_t number = 0;     // of the call, in the order in which they end, from 1
};

/// Which call of a trace made which tensor. Of calls in calls the outermost that has ended counts.
/// Views, casts and copies make nothing: what they return comes from where their argument does.
class ValueSources {
 public:
  explicit ValueSources(const tensor::ParameterList& parameters);

  void visit(const TracedCall& call);

  /// Calls so far.
  int64_t num_calls() const { return num_calls_; }

  /// Null for a tensor that was given to the step.
  const ValueSource* find(const at::Tensor& tensor) const;

 private:
  // Weak, so that the address is of no other tensor while it is here.
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Entry {
    WeakTensor tensor;
    ValueSource source;
  };

  void set(const at::Tensor& tensor, const ValueSource& source);

  int64_t num_calls_ = 0;
  std::unordered_map<const c10::TensorImpl*, Entry> entries_;
};

}  // namespace mantissa::monitor
