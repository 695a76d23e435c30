#include "mantissa/tensor/state_dict.h"

#include <ATen/core/grad_mode.h>

#include "mantissa/base/error.h"

namespace mantissa::tensor {
namespace {

template <typename Value>
const Value& scalar_of(const std::map<std::string, StateDict::Scalar>& scalars,
                       const std::string& name, const char* type) {
  const auto found = scalars.find(name);
  MANTISSA_CHECK(found != scalars.end(), Corruption, "state: no entry \"", name,
                 "\"; the checkpoint is of another model or another version");
  const Value* value = std::get_if<Value>(&found->second);
  MANTISSA_CHECK(value != nullptr, Corruption, "state: entry \"", name, "\" is not ", type,
                 "; the checkpoint is of another version");
  return *value;
}

}  // namespace

void StateDict::require_new(const std::string& name) const {
  MANTISSA_CHECK(!contains(name), InvalidArgument, "state: entry \"", name,
                 "\" is set twice; give each a name of its own");
}

void StateDict::set(const std::string& name, const at::Tensor& tensor) {
  require_new(name);
  tensors_.emplace(name, tensor.detach());
}

void StateDict::set(const std::string& name, int64_t value) {
  require_new(name);
  scalars_.emplace(name, value);
}

void StateDict::set(const std::string& name, double value) {
  require_new(name);
  scalars_.emplace(name, value);
}

void StateDict::set(const std::string& name, const std::string& value) {
  require_new(name);
  scalars_.emplace(name, value);
}

void StateDict::merge(const std::string& prefix, const StateDict& other) {
  for (const auto& [name, tensor] : other.tensors_) {
    set(prefix + "." + name, tensor);
  }
  for (const auto& [name, scalar] : other.scalars_) {
    const std::string full_name = prefix + "." + name;
    std::visit([&](const auto& value) { set(full_name, value); }, scalar);
  }
}

StateDict StateDict::under(const std::string& prefix) const {
  const std::string start = prefix + ".";
  StateDict result;
  for (const auto& [name, tensor] : tensors_) {
    if (name.starts_with(start)) {
      result.tensors_.emplace(name.substr(start.size()), tensor);
    }
  }
  for (const auto& [name, scalar] : scalars_) {
    if (name.starts_with(start)) {
      result.scalars_.emplace(name.substr(start.size()), scalar);
    }
  }
  return result;
}

const at::Tensor& StateDict::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  MANTISSA_CHECK(found != tensors_.end(), Corruption, "state: no tensor \"", name,
                 "\"; the checkpoint is of another model or another version");
  return found->second;
}

int64_t StateDict::integer(const std::string& name) const {
  return scalar_of<int64_t>(scalars_, name, "an integer");
}

double StateDict::real(const std::string& name) const {
  return scalar_of<double>(scalars_, name, "a real number");
}

const std::string& StateDict::text(const std::string& name) const {
  return scalar_of<std::string>(scalars_, name, "a text");
}

bool StateDict::contains(const std::string& name) const {
  return tensors_.contains(name) || scalars_.contains(name);
}

void StateDict::copy_to(const std::string& name, const at::Tensor& target) const {
  const at::Tensor& source = tensor(name);
  MANTISSA_CHECK(source.sizes() == target.sizes(), Corruption, "state: tensor \"", name,
                 "\" has shape ", source.sizes(), ", the model wants ", target.sizes(),
                 "; resume with the model that was saved");
  MANTISSA_CHECK(source.scalar_type() == target.scalar_type(), Corruption, "state: tensor \"", name,
                 "\" is ", source.scalar_type(), ", the model wants ", target.scalar_type(),
                 "; resume with the precision that was saved");
  const at::NoGradGuard no_grad;
  target.copy_(source);
}

}  // namespace mantissa::tensor
