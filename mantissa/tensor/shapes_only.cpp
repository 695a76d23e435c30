#include "mantissa/tensor/shapes_only.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "mantissa/base/error.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::tensor {
namespace {

// A backend for which LibTorch has no kernel of its own, and that comes before the CPU. So of each
// operation the dispatcher takes what LibTorch has for any backend: the composition of others, or
// the shape function and then the form that writes into a given result, which ends in `skip` below.
constexpr c10::DispatchKey kKey = c10::DispatchKey::FPGA;
constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

struct Pass {
  std::map<numerics::Format, double> flops;
  std::vector<std::function<void()>> endings;
  c10::impl::IncludeDispatchKeyGuard key{kKey};
};

thread_local std::optional<Pass> pass;

using at::Tensor;
using torch::jit::Stack;

template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef()) {
      for_each_tensor(element, visit);
    }
  }
}

// Numbers that decide what happens next, and few.
bool is_computed(const Tensor& tensor) {
  return tensor.numel() <= 1 || c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

bool are_computed(const Stack& stack, size_t arguments) {
  bool result = true;
  for (size_t i = stack.size() - arguments; i < stack.size(); ++i) {
    for_each_tensor(stack[i],
                    [&](const Tensor& tensor) { result = result && is_computed(tensor); });
  }
  return result;
}

bool makes_view(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const auto& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

// What gives memory, not numbers, or reads one number.
bool is_bookkeeping(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNames = {
      "aten::empty", "aten::resize_", "aten::set_", "aten::_local_scalar_dense", "aten::is_set_to"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](std::string_view known) { return name.starts_with(known); });
}

/// Products write into one of their arguments, or are in place.
void note_product(std::string_view name, const Stack& stack, size_t arguments) {
  const auto* const first = &stack[stack.size() - arguments];
  const bool adds = name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::addmm_" ||
                    name == "aten::baddbmm_";
  if (!adds && name != "aten::mm" && name != "aten::bmm") {
    return;
  }
  const Tensor& a = first[adds ? 1 : 0].toTensor();
  const Tensor& b = first[adds ? 2 : 1].toTensor();
  note_flops(format_of(a.scalar_type()),
             2 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1)));
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Whether it writes into an empty tensor, which its kernel is to resize.
bool is_sized_by_kernel(const c10::FunctionSchema& schema, const Stack& stack) {
  const size_t arguments = schema.arguments().size();
  bool result = false;
  for (size_t i = 0; i < arguments; ++i) {
    if (writes(schema.arguments()[i])) {
      for_each_tensor(stack[stack.size() - arguments + i],
                      [&](const Tensor& tensor) { result = result || tensor.numel() == 0; });
    }
  }
  return result;
}

// The backend's fallback: an operation of which only a kernel is known.
void skip(const c10::OperatorHandle& operation, Stack* stack) {
  const c10::FunctionSchema& schema = operation.schema();
  const std::string_view name = schema.name();
  const size_t arguments = schema.arguments().size();
  if (is_bookkeeping(name) || makes_view(schema) || are_computed(*stack, arguments)) {
    operation.redispatchBoxed(kCpu, stack);
    return;
  }
  MANTISSA_CHECK(schema.is_mutable() && !is_sized_by_kernel(schema, *stack), Unsupported,
                 "shapes only: the shapes of what ", name,
                 " gives are known to its kernel alone; use other operations, or measure a step "
                 "that computes");
  note_product(name, *stack, arguments);
  std::vector<c10::IValue> written;
  for (size_t i = 0; i < arguments; ++i) {
    if (writes(schema.arguments()[i])) {
      written.push_back((*stack)[stack->size() - arguments + i]);
    }
  }
  torch::jit::drop(*stack, arguments);
  for (size_t i = 0; i < std::min(written.size(), schema.returns().size()); ++i) {
    stack->push_back(std::move(written[i]));
  }
}

// Composed of nothing in LibTorch: it computes where it is.
Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("aten::copy_", "")
                                    .typed<Tensor&(Tensor&, const Tensor&, bool)>();
  return is_computed(self) && is_computed(source)
             ? operation.redispatch(kCpu, self, source, non_blocking)
             : self;
}

// LibTorch's own sizes empty tensors. The same temporaries at the same time.
Tensor logsumexp(const Tensor& self, at::IntArrayRef dim, bool keepdim) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("aten::logsumexp", "")
                                    .typed<Tensor(const Tensor&, at::IntArrayRef, bool)>();
  if (is_computed(self)) {
    return operation.redispatch(kCpu, self, dim, keepdim);
  }
  const Tensor largest = self.amax(dim, true);
  return self.sub(largest).sum(dim, keepdim);
}

// LibTorch's own kernels of attention, and ours: results, and what LibTorch's works in.

using AttentionForward = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                    double, bool, const std::optional<Tensor>&,
                                                    std::optional<double>);
using AttentionBackward = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&,
                                                             const Tensor&, const Tensor&,
                                                             const Tensor&, const Tensor&, double,
                                                             bool, const std::optional<Tensor>&,
                                                             std::optional<double>);

// A causal mask leaves half of the scores.
void note_attention(const Tensor& query, const Tensor& key, bool causal, int products) {
  const auto scores = static_cast<double>(query.size(0) * query.size(1)) *
                      static_cast<double>(query.size(2)) * static_cast<double>(key.size(2));
  note_flops(format_of(query.scalar_type()),
             2.0 * products * scores * static_cast<double>(query.size(3)) * (causal ? 0.5 : 1));
}

// (B, H, T, W) over memory of (B, T, H, W).
Tensor empty_like_heads(const Tensor& query, int64_t width, at::ScalarType dtype) {
  return at::empty({query.size(0), query.size(2), query.size(1), width},
                   query.options().dtype(dtype))
      .transpose(1, 2);
}

// Rows of queries that LibTorch's kernel takes at once, and for each thread its FP32 numbers: the
// scores of these and 512 keys so many times, and `rest` numbers a row.
at::Tensor attention_scratch(const Tensor& query, const Tensor& key, int64_t scores, int64_t rest) {
  const int64_t length = query.size(2);
  const int64_t most = length >= 768 ? 256 : length >= 192 ? 64 : 32;
  const int64_t rows = std::min(most, length);
  return at::empty(
      {at::get_num_threads(), rows * (scores * std::min<int64_t>(512, key.size(2)) + rest)},
      query.options().dtype(at::kFloat));
}

std::tuple<Tensor, Tensor> attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                     double /*dropout*/, bool causal,
                                     const std::optional<Tensor>& /*mask*/,
                                     std::optional<double> /*scale*/) {
  note_attention(query, key, causal, 2);
  Tensor out = empty_like_heads(query, value.size(3), query.scalar_type());
  Tensor logsumexp = empty_like_heads(query, 1, at::kFloat).squeeze(-1);
  Tensor scratch;
  if (query.scalar_type() == at::kFloat) {
    scratch = attention_scratch(query, key, 1, 2 + query.size(3));
  }
  return {out, logsumexp};
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& /*out*/, const Tensor& /*logsumexp*/, double /*dropout*/, bool causal,
    const std::optional<Tensor>& /*mask*/, std::optional<double> /*scale*/) {
  note_attention(query, key, causal, 5);
  const auto like = [](const Tensor& tensor) {
    return empty_like_heads(tensor, tensor.size(3), tensor.scalar_type());
  };
  std::tuple<Tensor, Tensor, Tensor> gradients = {like(query), like(key), like(value)};
  Tensor dense;
  Tensor scratch;
  Tensor sums;
  if (query.scalar_type() == at::kFloat) {
    dense = grad_out.transpose(1, 2).contiguous();
    scratch = attention_scratch(query, key, 2, 0);
    sums = attention_scratch(query, key, 0, 1);
  }
  return gradients;
}

// LibTorch's FP32 convolutions lay dense numbers out anew, in blocks of channels, and back; how
// large a block is depends on the processor, and its padding is left out here. Our kernels, of 16
// bits, read what is there and take a bias in FP32.

// A factor or a result as the kernel has it; undefined where that is the tensor itself.
Tensor in_blocks(const Tensor& options, at::IntArrayRef sizes) {
  return is_16bit(options.scalar_type()) ? Tensor() : at::empty(sizes, options.options());
}

Tensor dense_factor(const Tensor& factor) {
  return is_16bit(factor.scalar_type()) ? factor : factor.contiguous();
}

double products_of(const Tensor& out, const Tensor& weight) {
  const int64_t terms = weight.numel() / weight.size(0);  // of each number
  return 2 * static_cast<double>(out.numel()) * static_cast<double>(terms);
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                   bool transposed, at::IntArrayRef /*output_padding*/, int64_t /*groups*/) {
  MANTISSA_CHECK(!transposed, Unsupported,
                 "shapes only: the shapes of a transposed convolution are known to its kernel "
                 "alone; measure a step that computes");
  std::vector<int64_t> sizes = {input.size(0), weight.size(0)};
  for (int64_t axis = 2; axis < input.dim(); ++axis) {
    const auto of = [&](at::IntArrayRef list) {
      return list[std::min(static_cast<size_t>(axis - 2), list.size() - 1)];
    };
    const int64_t reach = of(dilation) * (weight.size(axis) - 1) + 1;
    sizes.push_back((input.size(axis) + 2 * of(padding) - reach) / of(stride) + 1);
  }
  const Tensor dense = dense_factor(input);
  const Tensor wide_bias =
      bias && bias->defined() && is_16bit(bias->scalar_type()) ? bias->to(at::kFloat) : Tensor();
  const Tensor result = in_blocks(input, sizes);
  { const Tensor factor = in_blocks(input, input.sizes()); }
  Tensor out = at::empty(sizes, input.options());
  note_flops(format_of(input.scalar_type()), products_of(out, weight));
  return out;
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& grad_out, const Tensor& input, const Tensor& weight,
    at::OptionalIntArrayRef /*bias*/, at::IntArrayRef /*stride*/, at::IntArrayRef /*padding*/,
    at::IntArrayRef /*dilation*/, bool /*transposed*/, at::IntArrayRef /*output_padding*/,
    int64_t /*groups*/, std::array<bool, 3> wanted) {
  const Tensor dense_grad = dense_factor(grad_out);
  const Tensor dense = dense_factor(input);
  std::tuple<Tensor, Tensor, Tensor> gradients;
  if (wanted[0]) {
    const Tensor result = in_blocks(input, input.sizes());
    { const Tensor factor = in_blocks(input, grad_out.sizes()); }
    std::get<0>(gradients) = at::empty(input.sizes(), input.options());
    note_flops(format_of(input.scalar_type()), products_of(grad_out, weight));
  }
  if (wanted[1]) {
    const Tensor factor = in_blocks(input, input.sizes());
    const Tensor other = in_blocks(input, grad_out.sizes());
    std::get<1>(gradients) = at::empty(weight.sizes(), input.options());
    note_flops(format_of(input.scalar_type()), products_of(grad_out, weight));
  }
  if (wanted[2]) {
    std::get<2>(gradients) = at::empty({weight.size(0)}, input.options());
  }
  return gradients;
}

Tensor flip(const Tensor& self, at::IntArrayRef /*dims*/) { return at::empty_like(self); }

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[static_cast<size_t>(dim < 0 ? dim + self.dim() : dim)] = index.numel();
  return at::empty(sizes, self.options());
}

void register_kernels() {
  static const bool done = [] {
    // Never destroyed: deregistration at exit would meet other threads.
    auto* const all = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    all->fallback(torch::CppFunction::makeFromBoxedFunction<&skip>());
    auto* const aten = new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    aten->impl("copy_", TORCH_FN(copy_));
    aten->impl("logsumexp", TORCH_FN(logsumexp));
    aten->impl("_scaled_dot_product_flash_attention_for_cpu", TORCH_FN(attention));
    aten->impl("_scaled_dot_product_flash_attention_for_cpu_backward",
               TORCH_FN(attention_backward));
    aten->impl("flip", TORCH_FN(flip));
    aten->impl("index_select", TORCH_FN(index_select));
    aten->impl("convolution", TORCH_FN(convolution));
    aten->impl("convolution_backward", TORCH_FN(convolution_backward));
    return true;
  }();
  (void)done;
}

}  // namespace

ShapesOnly::ShapesOnly() : allocator_(memory::current_allocator()) {
  MANTISSA_CHECK(!pass, InvalidArgument, "shapes only: a second one on this thread; end the first");
  register_kernels();
  memory::set_allocator(memory::Allocator::addresses);
  pass.emplace();
}

ShapesOnly::~ShapesOnly() {
  for (const auto& forget : std::exchange(pass->endings, {})) {
    forget();
  }
  pass.reset();
  memory::set_allocator(allocator_);
}

std::map<numerics::Format, double> ShapesOnly::flops() const { return pass->flops; }

bool is_shapes_only() { return pass.has_value(); }

void at_end_of_shapes_only(std::function<void()> forget) {
  if (pass) {
    pass->endings.push_back(std::move(forget));
  }
}

void note_flops(numerics::Format format, double flops) {
  if (pass) {
    pass->flops[format] += flops;
  }
}

}  // namespace mantissa::tensor
