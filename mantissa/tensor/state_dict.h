#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::tensor {

/// What a component gives to a checkpoint and takes back: tensors and scalars under dotted names.
/// Tensors are shared, not copied.
///
///     StateDict state;
///     state.merge("optimizer", optimizer.state_dict());
///     checkpoint::write(directory, state);
///     optimizer.load_state_dict(state.under("optimizer"));
class MANTISSA_API StateDict {
 public:
  using Scalar = std::variant<int64_t, double, std::string>;

  /// The names must be new.
  void set(const std::string& name, const at::Tensor& tensor);
  void set(const std::string& name, int64_t value);
  void set(const std::string& name, double value);
  void set(const std::string& name, const std::string& value);

  /// Adds all of `other` under `prefix.`.
  void merge(const std::string& prefix, const StateDict& other);

  /// The entries under `prefix.`, without it.
  StateDict under(const std::string& prefix) const;

  /// Each throws Corruption when the name is missing or of another type.
  const at::Tensor& tensor(const std::string& name) const;
  int64_t integer(const std::string& name) const;
  double real(const std::string& name) const;
  const std::string& text(const std::string& name) const;

  bool contains(const std::string& name) const;

  /// Copies `name` into `target` in place. Throws Corruption when shape or dtype differ: a state
  /// is never cast on the way in.
  void copy_to(const std::string& name, const at::Tensor& target) const;

  // Not of a temporary: a range-for over `component.state_dict().tensors()` would dangle.
  const std::map<std::string, at::Tensor>& tensors() const& { return tensors_; }
  const std::map<std::string, at::Tensor>& tensors() && = delete;
  const std::map<std::string, Scalar>& scalars() const& { return scalars_; }
  const std::map<std::string, Scalar>& scalars() && = delete;

 private:
  void require_new(const std::string& name) const;

  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, Scalar> scalars_;
};

}  // namespace mantissa::tensor
