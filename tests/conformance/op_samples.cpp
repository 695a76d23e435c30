#include "op_samples.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <ATen/Context.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/view_as_real.h>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/nonfinite.h"
#include "mantissa/tensor/safetensors.h"

namespace mantissa::conformance {
namespace {

using c10::IValue;
using c10::TypeKind;
using nlohmann::json;

bool is_tensor(const json& value) { return value.is_object() && value.contains("tensor"); }

// A number in the place of a tensor, such as 2 in add(x, 2), takes part in no promotion.
at::Tensor wrapped_number(const json& value) {
  const at::Scalar number = value.is_number_integer() ? at::Scalar(value.get<int64_t>())
                            : value.is_boolean()      ? at::Scalar(value.get<bool>())
                                                      : at::Scalar(value.get<double>());
  const at::Tensor tensor = at::scalar_tensor(number, number.type());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

double special_number(const std::string& word) {
  const std::optional<double> number = nonfinite_value(word);
  MANTISSA_CHECK(number.has_value(), Corruption, "op_samples: unknown number ", word);
  return *number;
}

at::ScalarType dtype_named(const std::string& name) {
  static const std::map<std::string, at::ScalarType> dtypes = {
      {"float32", at::kFloat}, {"float64", at::kDouble}, {"bfloat16", at::kBFloat16},
      {"float16", at::kHalf},  {"int64", at::kLong},     {"int32", at::kInt},
      {"bool", at::kBool}};
  const auto found = dtypes.find(name);
  MANTISSA_CHECK(found != dtypes.end(), Corruption, "op_samples: unknown dtype ", name);
  return found->second;
}

// Turns the JSON form of arguments into values.
class Reader {
 public:
  Reader(const std::map<std::string, at::Tensor>& tensors, const Dtypes& dtypes)
      : tensors_(tensors), dtypes_(dtypes) {}

  IValue read(const json& value, const c10::TypePtr& type) {
    if (value.is_null()) {
      return {};
    }
    switch (type->kind()) {
      case TypeKind::OptionalType:
        return read(value, type->castRaw<c10::OptionalType>()->getElementType());
      case TypeKind::ListType:
        return read_list(value, type->castRaw<c10::ListType>()->getElementType());
      case TypeKind::TensorType:
        return is_tensor(value) ? tensor(value) : wrapped_number(value);
      case TypeKind::FloatType:
        return value.is_number() ? IValue(value.get<double>()) : read_word(value);
      default:
        return read_number(value);
    }
  }

 private:
  IValue read_list(const json& values, const c10::TypePtr& element) {
    c10::impl::GenericList list(element);
    for (const json& value : values) {
      list.push_back(read(value, element));
    }
    return list;
  }

  static IValue read_number(const json& value) {
    if (value.is_boolean()) {
      return value.get<bool>();
    }
    if (value.is_number_integer()) {
      return value.get<int64_t>();
    }
    return value.is_number() ? IValue(value.get<double>()) : read_word(value);
  }

  static IValue read_word(const json& value) {
    if (value.is_string()) {
      return value.get<std::string>();
    }
    if (value.contains("dtype")) {
      return dtype_named(value.at("dtype"));
    }
    return special_number(value.at("float"));
  }

  at::Tensor tensor(const json& value) {
    const at::Tensor& original = tensors_.at(value.at("tensor"));
    const at::ScalarType dtype =
        original.is_floating_point() ? dtypes_(floating_++) : original.scalar_type();
    const at::Tensor copy = original.to(dtype, /*non_blocking=*/false, /*copy=*/true);
    return copy.requires_grad_(value.value("grad", false));
  }

  const std::map<std::string, at::Tensor>& tensors_;
  const Dtypes& dtypes_;
  int64_t floating_ = 0;
};

void count_floating(const json& value, const std::map<std::string, at::Tensor>& tensors,
                    int64_t& count) {
  if (is_tensor(value)) {
    count += tensors.at(value.at("tensor")).is_floating_point() ? 1 : 0;
  } else if (value.is_structured()) {
    for (const json& part : value) {
      count_floating(part, tensors, count);
    }
  }
}

// Whether this LibTorch has all arguments that the call gives, and none without a default that it
// does not give.
bool fits(const c10::FunctionSchema& schema, const json& arguments) {
  for (const auto& [name, value] : arguments.items()) {
    if (!schema.argumentIndexWithName(name)) {
      return false;
    }
  }
  for (const c10::Argument& argument : schema.arguments()) {
    if (!arguments.contains(argument.name()) && !argument.default_value()) {
      return false;
    }
  }
  return true;
}

template <typename Visit>
void for_each_tensor(const std::vector<IValue>& values, const Visit& visit) {
  for (const IValue& value : values) {
    if (value.isTensor()) {
      visit(value.toTensor());
    } else if (value.isList()) {
      for (const IValue& element : value.toListRef()) {
        if (element.isTensor()) {
          visit(element.toTensor());
        }
      }
    }
  }
}

}  // namespace

bool repeats(const SampleCall& call) {
  return call.operation != "linalg_lstsq" || call.arguments.value("driver", "gelsy") != "gelsy";
}

OpSamples::OpSamples() {
  const std::string folder = MANTISSA_SOURCE_DIR "/tests/conformance/op_samples/";
  tensors_ = tensor::read_safetensors(folder + "tensors.safetensors").tensors;
  const json file = json::parse(read_file(folder + "calls.json"));
  version_ = file.at("torch");
  missing_ = file.at("missing");
  for (const json& entry : file.at("calls")) {
    const std::string operation = entry.at("op");
    const size_t dot = operation.find('.');
    const c10::OperatorName name("aten::" + operation.substr(0, dot),
                                 dot == std::string::npos ? "" : operation.substr(dot + 1));
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (handle && fits(handle->schema(), entry.at("args"))) {
      calls_.push_back({operation, *handle, entry.at("args")});
    }
  }
}

std::vector<IValue> OpSamples::arguments(const SampleCall& call, const Dtypes& dtypes) const {
  Reader reader(tensors_, dtypes);
  std::vector<IValue> values;
  for (const c10::Argument& argument : call.handle.schema().arguments()) {
    const auto given = call.arguments.find(argument.name());
    values.push_back(given == call.arguments.end() ? argument.default_value().value()
                                                   : reader.read(*given, argument.type()));
  }
  return values;
}

int64_t OpSamples::floating_tensors(const SampleCall& call) const {
  int64_t count = 0;
  for (const json& argument : call.arguments) {
    count_floating(argument, tensors_, count);
  }
  return count;
}

std::vector<at::Tensor> call(const c10::OperatorHandle& handle,
                             const std::vector<IValue>& arguments) {
  at::manual_seed(7);
  torch::jit::Stack stack = arguments;
  handle.callBoxed(&stack);
  std::vector<at::Tensor> results;
  for_each_tensor(stack, [&](const at::Tensor& tensor) { results.push_back(tensor); });
  return results;
}

std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& results,
                                  const std::vector<IValue>& arguments) {
  at::Tensor loss;
  for (const at::Tensor& result : results) {
    if (result.requires_grad()) {
      const at::Tensor real =
          result.is_complex() ? at::view_as_real(result.resolve_conj()) : result;
      const at::Tensor term = real.to(at::kDouble).square().sum();
      loss = loss.defined() ? loss.add(term) : term;
    }
  }
  if (loss.defined()) {
    loss.backward();
  }
  std::vector<at::Tensor> found;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    if (tensor.requires_grad()) {
      found.push_back(tensor.grad());
    }
  });
  return found;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) {
    return a.defined() == b.defined();
  }
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return false;
  }
  if (a.is_complex()) {
    return same_bits(at::view_as_real(a.detach().resolve_conj()),
                     at::view_as_real(b.detach().resolve_conj()));
  }
  const at::Tensor nan = at::isnan(a);
  if (!at::equal(nan, at::isnan(b))) {
    return false;
  }
  const at::Tensor ours = a.detach().masked_fill(nan, 0).contiguous();
  const at::Tensor theirs = b.detach().masked_fill(nan, 0).contiguous();
  return ours.nbytes() == 0 ||
         std::memcmp(ours.const_data_ptr(), theirs.const_data_ptr(), ours.nbytes()) == 0;
}

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [](const at::Tensor& x, const at::Tensor& y) { return same_bits(x, y); });
}

}  // namespace mantissa::conformance
