#include "mantissa/amp/unboxed_kernel.h"

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/Operators.h>
#include <ATen/core/boxing/impl/boxing.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "mantissa/amp/argument_cast.h"
#include "mantissa/amp/compiled_policy.h"
#include "mantissa/amp/emulation.h"

namespace mantissa::amp {
namespace {

template <typename Argument>
constexpr bool kIsTensor = std::is_same_v<Argument, const at::Tensor&>;

template <typename Argument>
constexpr bool kIsOptionalTensor = std::is_same_v<Argument, const std::optional<at::Tensor>&>;

template <typename Argument>
constexpr bool kIsTensorList =
    std::is_same_v<Argument, at::TensorList> || std::is_same_v<Argument, const at::ITensorListRef&>;

template <typename Argument>
bool has_to_be_cast(Argument argument, at::ScalarType dtype) {
  if constexpr (kIsTensor<Argument>) {
    return needs_cast(argument, dtype);
  } else if constexpr (kIsOptionalTensor<Argument>) {
    return argument.has_value() && needs_cast(*argument, dtype);
  } else if constexpr (kIsTensorList<Argument>) {
    return std::any_of(argument.begin(), argument.end(),
                       [&](const at::Tensor& tensor) { return needs_cast(tensor, dtype); });
  } else {
    return false;
  }
}

template <typename Argument>
auto cast(Argument argument, at::ScalarType dtype) {
  if constexpr (kIsTensor<Argument>) {
    return cast_argument(argument, dtype);
  } else if constexpr (kIsOptionalTensor<Argument>) {
    return argument ? std::make_optional(cast_argument(*argument, dtype)) : std::nullopt;
  } else if constexpr (kIsTensorList<Argument>) {
    std::vector<at::Tensor> result;
    for (const at::Tensor& tensor : argument) {
      result.push_back(cast_argument(tensor, dtype));
    }
    return result;
  } else {
    return argument;
  }
}

template <typename Argument>
void widen(WidestDtype& widest, Argument argument) {
  if constexpr (kIsTensor<Argument>) {
    widest.add(argument);
  } else if constexpr (kIsTensorList<Argument>) {
    for (const at::Tensor& tensor : argument) {
      widest.add(tensor);
    }
  }
}

/// `dtype` of an operation whose first tensor is `first`.
template <typename Argument>
Argument with_fp32_output(Argument argument, const at::Tensor& first) {
  if constexpr (std::is_same_v<Argument, std::optional<at::ScalarType>>) {
    return argument || !is_eligible(first) ? argument : at::kFloat;
  } else {
    return static_cast<Argument>(argument);
  }
}

template <typename Operation, typename Schema = typename Operation::schema>
class UnboxedKernel;

template <typename Operation, typename Return, typename... Arguments>
class UnboxedKernel<Operation, Return(Arguments...)> final : public c10::OperatorKernel {
 public:
  UnboxedKernel(const c10::OperatorHandle& operation, size_t number, AutocastKernel general)
      : operation_(operation), number_(number), general_(std::move(general)) {}

  Return operator()(c10::DispatchKeySet keys, Arguments... arguments) {
    const CompiledPolicy* policy = active_compiled_policy();
    const Rule rule = policy == nullptr ? Rule::keep : rule_of(*policy, number_);
    if (rule == Rule::keep) {
      return Operation::redispatch(keys & kBelowAutocast, std::forward<Arguments>(arguments)...);
    }
    if (rule == Rule::fp32 || rule == Rule::widest ||
        (rule == Rule::lower && active_parameter_formats() == nullptr && !emulated_format())) {
      const c10::impl::ExcludeDispatchKeyGuard no_autocast(kAutocastKey);
      const at::ScalarType dtype = dtype_of(rule, *policy, arguments...);
      if (!(has_to_be_cast<Arguments>(arguments, dtype) || ...)) {
        return Operation::redispatch(keys & kBelowAutocast, std::forward<Arguments>(arguments)...);
      }
      // In their order, which autograd keeps in its graph.
      std::tuple casts{cast<Arguments>(arguments, dtype)...};
      return std::apply([](auto&... each) { return Operation::call(each...); }, casts);
    }
    if constexpr (kHasDtype) {
      if (rule == Rule::fp32_output) {
        const c10::impl::ExcludeDispatchKeyGuard no_autocast(kAutocastKey);
        const at::Tensor& first = std::get<0>(std::forward_as_tuple(arguments...));
        return Operation::call(with_fp32_output<Arguments>(arguments, first)...);
      }
    }
    torch::jit::Stack stack =
        c10::impl::boxArgs<Arguments...>(std::forward<Arguments>(arguments)...);
    general_(operation_, keys, &stack);
    return c10::impl::PopResult<Return>::call(stack);
  }

 private:
  static constexpr bool kHasDtype =
      (std::is_same_v<Arguments, std::optional<at::ScalarType>> || ...);

  at::ScalarType dtype_of(Rule rule, const CompiledPolicy& policy, Arguments... arguments) const {
    if (rule == Rule::fp32) {
      return at::kFloat;
    }
    if (rule == Rule::lower) {
      return compute_dtype(policy);
    }
    WidestDtype widest(operation_, policy);
    (widen<Arguments>(widest, arguments), ...);
    return widest.value();
  }

  c10::OperatorHandle operation_;
  size_t number_;
  AutocastKernel general_;
};

/// None with lists of optional tensors or tensors that are written.
template <typename... Operations>
std::optional<c10::KernelFunction> find_kernel(const c10::OperatorHandle& operation, size_t number,
                                               const AutocastKernel& general) {
  const c10::OperatorName& name = operation.operator_name();
  std::optional<c10::KernelFunction> result;
  const auto make_if_named = [&]<typename Operation>(std::type_identity<Operation>) {
    if (name.name == Operation::name && name.overload_name == Operation::overload_name) {
      using Kernel = UnboxedKernel<Operation>;
      result = c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(
          std::make_unique<Kernel>(operation, number, general));
    }
  };
  (make_if_named(std::type_identity<Operations>()), ...);
  return result;
}

}  // namespace

std::optional<c10::KernelFunction> unboxed_kernel(const c10::OperatorHandle& operation,
                                                  size_t number, const AutocastKernel& general) {
  namespace op = at::_ops;
  return find_kernel<
      op::mm, op::addmm, op::bmm, op::baddbmm, op::mv, op::addmv, op::matmul, op::linear, op::prelu,
      op::convolution, op::conv1d, op::conv1d_padding, op::conv2d, op::conv2d_padding, op::conv3d,
      op::conv_transpose1d, op::conv_transpose2d_input, op::scaled_dot_product_attention,
      op::layer_norm, op::group_norm, op::softmax_int, op::log_softmax_int, op::logsumexp, op::sum,
      op::sum_dim_IntList, op::prod, op::cumsum, op::linalg_vector_norm, op::exp, op::expm1,
      op::log, op::log2, op::log1p, op::reciprocal, op::rsqrt, op::softplus, op::pow_Tensor_Scalar,
      op::pow_Tensor_Tensor, op::cross_entropy_loss, op::nll_loss,
      op::binary_cross_entropy_with_logits, op::mse_loss, op::l1_loss, op::smooth_l1_loss,
      op::huber_loss, op::kl_div, op::poisson_nll_loss, op::cosine_similarity, op::cdist, op::cat,
      op::stack, op::einsum, op::addcmul, op::addcdiv, op::dot, op::scatter_add, op::index_add,
      op::where_self, op::lerp_Tensor>(operation, number, general);
}

}  // namespace mantissa::amp
