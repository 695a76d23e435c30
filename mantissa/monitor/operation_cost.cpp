#include "mantissa/monitor/operation_cost.h"

#include <algorithm>
#include <initializer_list>

#include <ATen/core/Tensor.h>

#include "mantissa/base/error.h"

namespace mantissa::monitor {
namespace {

using at::Tensor;
using Values = std::span<const c10::IValue>;

Tensor tensor_at(Values values, size_t i) {
  return i < values.size() && values[i].isTensor() ? values[i].toTensor() : Tensor();
}

bool have_dims(std::initializer_list<Tensor> tensors, int64_t least) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
    return tensor.defined() && tensor.dim() >= least;
  });
}

double count(const Tensor& tensor) { return static_cast<double>(tensor.numel()); }

bool is_aligned(std::initializer_list<int64_t> sides) {
  constexpr int64_t kSide = 8;
  return std::all_of(sides.begin(), sides.end(), [](int64_t side) { return side % kSide == 0; });
}

// a b, of matrices or batches of them; of a vector in the place of b one column.
OperationCost matrix_product(Values values, size_t first) {
  const Tensor a = tensor_at(values, first);
  const Tensor b = tensor_at(values, first + 1);
  if (!have_dims({a, b}, 1)) {
    return {};
  }
  const bool is_vector = b.dim() == 1;
  const int64_t columns = is_vector ? 1 : b.size(-1);
  return {OperationKind::product,
          2 * count(a) * static_cast<double>(columns),
          {first, first + 1},
          !is_vector && a.dim() > 1 && is_aligned({a.size(-2), a.size(-1), columns})};
}

double positions(const Tensor& tensor) {  // without batch and channels
  double result = 1;
  for (int64_t i = 2; i < tensor.dim(); ++i) {
    result *= static_cast<double>(tensor.size(i));
  }
  return result;
}

bool are_channels_aligned(const Tensor& weight) {
  return is_aligned({weight.size(0), weight.size(1)});
}

// (input, weight, bias, stride, padding, dilation, transposed, ...): each weight of an output
// channel once for each position of the output, of a transposed one for each of the input.
OperationCost convolution(Values values) {
  const Tensor input = tensor_at(values, 0);
  const Tensor weight = tensor_at(values, 1);
  if (values.size() < 7 || !have_dims({input, weight}, 3) || input.dim() != weight.dim()) {
    return {};
  }
  double places = positions(input);
  if (!values[6].toBool()) {
    const auto stride = values[3].toIntVector();
    const auto padding = values[4].toIntVector();
    const auto dilation = values[5].toIntVector();
    const auto of = [](const std::vector<int64_t>& list, int64_t i) {
      return list.size() == 1 ? list[0] : list.at(static_cast<size_t>(i));
    };
    places = 1;
    for (int64_t i = 0; i < input.dim() - 2; ++i) {
      const int64_t reach = of(dilation, i) * (weight.size(i + 2) - 1) + 1;
      const int64_t room = input.size(i + 2) + 2 * of(padding, i) - reach;
      places *= room < 0 ? 0 : static_cast<double>(room / of(stride, i) + 1);
    }
  }
  return {OperationKind::product,
          2 * static_cast<double>(input.size(0)) * places * count(weight),
          {0, 1},
          are_channels_aligned(weight)};
}

// (grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding,
// groups, output_mask)
OperationCost convolution_backward(Values values) {
  const Tensor grad_output = tensor_at(values, 0);
  const Tensor input = tensor_at(values, 1);
  const Tensor weight = tensor_at(values, 2);
  if (values.size() < 11 || !have_dims({grad_output, input, weight}, 3)) {
    return {};
  }
  const Tensor& swept = values[7].toBool() ? input : grad_output;
  const auto mask = values[10].toBoolList();
  const double gradients = (mask.get(0) ? 1 : 0) + (mask.get(1) ? 1 : 0);
  return {OperationKind::product,
          gradients * 2 * static_cast<double>(input.size(0)) * positions(swept) * count(weight),
          {0, 1, 2},
          are_channels_aligned(weight)};
}

// Query, key and value from `first` on, (B, H, T, W); the causal flag is the first bool. Forward
// has two products of as many numbers as there are scores, backward five.
OperationCost attention(Values values, size_t first, double products) {
  const Tensor query = tensor_at(values, first);
  const Tensor key = tensor_at(values, first + 1);
  if (!have_dims({query, key}, 4)) {
    return {};
  }
  const auto flag = std::find_if(values.begin(), values.end(),
                                 [](const c10::IValue& value) { return value.isBool(); });
  const bool is_causal = flag != values.end() && flag->toBool();
  const double scores = static_cast<double>(query.size(0) * query.size(1)) *
                        static_cast<double>(query.size(-2)) * static_cast<double>(key.size(-2));
  return {OperationKind::product,
          2 * products * scores * static_cast<double>(query.size(-1)) * (is_causal ? 0.5 : 1),
          {first, first + 1, first + 2},
          is_aligned({query.size(-2), query.size(-1), key.size(-2)})};
}

// (input, weight, bias, targets, reduction, ignore_index, label_smoothing, wanted): the logits, and
// where they are wanted the gradients of input and weight.
OperationCost linear_cross_entropy(Values values) {
  const Tensor input = tensor_at(values, 0);
  const Tensor weight = tensor_at(values, 1);
  if (values.size() < 8 || !have_dims({input, weight}, 2)) {
    return {};
  }
  const auto wanted = values[7].toBoolList();
  const double products = 1 + (wanted.get(0) ? 1 : 0) + (wanted.get(1) ? 1 : 0);
  return {OperationKind::product,
          products * 2 * count(input) * static_cast<double>(weight.size(0)),
          {0, 1},
          is_aligned({input.size(0), input.size(1), weight.size(0)})};
}

// (source, dtype, ...) and (self, source, ...)
OperationCost cast_of(const Tensor& source, at::ScalarType to) {
  const bool is_cast = source.defined() && source.numel() > 1 && source.is_floating_point() &&
                       at::isFloatingType(to) && source.scalar_type() != to;
  return {is_cast ? OperationKind::cast : OperationKind::other};
}

bool is_any(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string_view to_string(OperationKind kind) {
  switch (kind) {
    case OperationKind::product:
      return "product";
    case OperationKind::cast:
      return "cast";
    case OperationKind::view:
      return "view";
    case OperationKind::other:
      return "other";
  }
  MANTISSA_ASSERT(false);
}

OperationCost operation_cost(std::string_view name, Values values) {
  if (name == "mantissa::_linear_cross_entropy") {
    return linear_cross_entropy(values);
  }
  if (!name.starts_with("aten::")) {
    return {};
  }
  name.remove_prefix(6);
  if (is_any(name, {"mm", "bmm", "mv", "dot", "vdot"})) {
    return matrix_product(values, 0);
  }
  if (is_any(name,
             {"addmm", "addmm_", "baddbmm", "baddbmm_", "_addmm_activation", "addmv", "addmv_"})) {
    return matrix_product(values, 1);
  }
  if (name == "convolution") {
    return convolution(values);
  }
  if (name == "convolution_backward") {
    return convolution_backward(values);
  }
  if (name.starts_with("_scaled_dot_product_") && name != "_scaled_dot_product_attention_math") {
    const bool is_backward = name.find("backward") != std::string_view::npos;
    return attention(values, is_backward ? 1 : 0, is_backward ? 5 : 2);
  }
  if (name == "_to_copy" && values.size() > 1 && values[1].isInt()) {
    return cast_of(tensor_at(values, 0), static_cast<at::ScalarType>(values[1].toInt()));
  }
  if (name == "copy_" && tensor_at(values, 0).defined()) {
    return cast_of(tensor_at(values, 1), tensor_at(values, 0).scalar_type());
  }
  return {};
}

double tensor_bytes(Values values) {
  double bytes = 0;
  const auto add = [&](const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined()) {
      const Tensor& tensor = value.toTensor();
      const auto dense = count(tensor) * static_cast<double>(tensor.element_size());
      bytes += tensor.has_storage()
                   ? std::min(dense, static_cast<double>(tensor.storage().nbytes()))
                   : dense;
    }
  };
  for (const c10::IValue& value : values) {
    if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        add(element);
      }
    } else {
      add(value);
    }
  }
  return bytes;
}

}  // namespace mantissa::monitor
