#include "mantissa/monitor/twin_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include <ATen/TensorOperators.h>
#include <ATen/core/stack.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/ldexp.h>
#include <ATen/ops/ones_like.h>

#include "mantissa/monitor/call_values.h"
#include "mantissa/numerics/error_bound.h"

namespace mantissa::monitor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double l2(const at::Tensor& x) { return x.norm().item<double>(); }

// numerics::ulp() of each number.
at::Tensor ulps_at(const at::Tensor& x, numerics::Format format) {
  const numerics::FormatInfo& info = numerics::info(format);
  const int64_t smallest = 1 - info.bias;
  const at::Tensor exponent = std::get<1>(at::frexp(x))
                                  .sub(1)
                                  .masked_fill(x.eq(0), smallest)
                                  .clamp(smallest, std::ilogb(info.max));
  return at::ldexp(at::ones_like(x), exponent.sub(info.fraction_bits));
}

// How a product sums: over so many terms, of the arguments of that name.
struct Product {
  std::string_view operation;
  std::string_view left;
  std::string_view right;
};

constexpr std::array kProducts = {Product{"mm", "self", "mat2"},
                                  Product{"bmm", "self", "mat2"},
                                  Product{"addmm", "mat1", "mat2"},
                                  Product{"baddbmm", "batch1", "batch2"},
                                  Product{"matmul", "self", "other"},
                                  Product{"mv", "self", "vec"},
                                  Product{"linear", "input", "weight"},
                                  Product{"conv1d", "input", "weight"},
                                  Product{"conv2d", "input", "weight"},
                                  Product{"conv3d", "input", "weight"},
                                  Product{"convolution", "input", "weight"}};

const Product* product_of(const TracedCall& call) {
  const std::string name = base_name(call);
  const auto found = std::find_if(kProducts.begin(), kProducts.end(),
                                  [&](const Product& each) { return each.operation == name; });
  return found == kProducts.end() ? nullptr : &*found;
}

// Terms of a sum; a bias is one more.
int64_t num_terms(const Product& product, const at::Tensor& left, const at::Tensor& right) {
  return product.operation.starts_with("conv") ? right.numel() / right.size(0) + 1
                                               : left.size(-1) + 1;
}

// The first result for FP32 arguments, each changed by `change`.
template <typename Change>
at::Tensor called_in_fp32(const TracedCall& call, const Change& change) {
  torch::jit::Stack stack;
  stack.reserve(call.inputs.size());
  for (const c10::IValue& input : call.inputs) {
    const bool is_real = input.isTensor() && holds_reals(input.toTensor());
    stack.push_back(is_real ? c10::IValue(change(input.toTensor().to(at::kFloat))) : input);
  }
  call.operation->callBoxed(&stack);
  return stack[stack.size() - call.operation->schema().returns().size()].toTensor();
}

// The L2 norm of the bounds of all results. The bound of one is affine in the sum of magnitudes.
double bound_norm(const TracedCall& call, const Product& product, numerics::Format output) {
  const at::Tensor left = tensor_argument(call, product.left);
  const at::Tensor right = tensor_argument(call, product.right);
  const auto bound = [&](double sum) {
    numerics::DotProduct dot;
    dot.length = num_terms(product, left, right);
    dot.output = output;
    dot.sum_abs_products = sum;
    dot.sum_abs_inputs =
        static_cast<double>(dot.length) * (largest_magnitude(left) + largest_magnitude(right));
    return numerics::dot_error_bound(dot);
  };
  const at::Tensor sums = called_in_fp32(call, [](const at::Tensor& x) { return x.abs(); });
  const double constant = bound(0);
  return l2(sums.to(at::kDouble).mul(bound(1) - constant).add(constant));
}

bool is_tensor_result(const c10::FunctionSchema& schema) {
  return !schema.is_mutable() && !schema.returns().empty() &&
         schema.returns()[0].type()->kind() == c10::TypeKind::TensorType &&
         schema.returns()[0].alias_info() == nullptr;
}

bool ran_in_16_bits(const TracedCall& call) {
  const auto tensors = tensors_in(call.inputs);
  return format_16bit(result(call)) &&
         std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return format_16bit(tensor).has_value(); });
}

}  // namespace

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.to(at::kDouble);
  const double difference = l2(a.to(at::kDouble).sub(wide));
  const double size = l2(wide);
  if (difference == 0) {
    return 0;
  }
  return std::isfinite(difference) && size > 0 ? difference / size : kInfinity;
}

void compare_values(TwinRow& row, const at::Tensor& value, const at::Tensor& reference,
                    numerics::Format format) {
  const at::Tensor a = value.to(at::kDouble).flatten();
  const at::Tensor b = reference.to(at::kDouble).flatten();
  row.nonfinite = num_true(a.isfinite().logical_not().logical_and(b.isfinite()));
  const int64_t num_both = num_true(a.isfinite().logical_and(b.isfinite()));
  row.relative_error = row.nonfinite > 0 ? kInfinity : relative_error(a, b);
  const double sizes = l2(a) * l2(b);
  row.cosine = sizes > 0 ? a.dot(b).item<double>() / sizes : a.equal(b) ? 1 : 0;
  const int64_t present = num_true(b.ne(0));
  row.zeros = present == 0 ? 0
                           : static_cast<double>(num_true(a.eq(0).logical_and(b.ne(0)))) /
                                 static_cast<double>(present);
  if (num_both == a.numel()) {
    const at::Tensor ulps = a.sub(b).abs().div(ulps_at(b, format));
    row.mean_ulps = ulps.mean().item<double>();
    row.max_ulps = ulps.max().item<double>();
  } else {
    row.mean_ulps = kInfinity;
    row.max_ulps = kInfinity;
  }
}

void judge_own_error(TwinRow& row, const TracedCall& call) {
  if (!ran_in_16_bits(call) || !is_tensor_result(call.operation->schema())) {
    return;
  }
  const ReplayPoint here;
  const ReplayPoint::Guard generator(here);  // dropout draws
  const at::Tensor reference = called_in_fp32(call, [](const at::Tensor& x) { return x; });
  if (reference.sizes() != result(call).sizes()) {
    return;
  }
  row.own_error = relative_error(result(call), reference);
  const Product* product = product_of(call);
  const double size = l2(reference.to(at::kDouble));
  if (product != nullptr && size > 0) {
    row.bound = bound_norm(call, *product, *format_16bit(result(call))) / size;
  }
}

}  // namespace mantissa::monitor
