#include "mantissa/ops/attention.h"

#include <cmath>
#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_cpu_dispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "mantissa/ops/compute_path.h"
#include "mantissa/ops/flash_attention.h"
#include "mantissa/ops/parallel.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

using at::Tensor;
using numerics::Format;

// The arguments of LibTorch's flash attention: (B, H, T or S, E), T queries and S keys.
struct Inputs {
  const Tensor& query;
  const Tensor& key;
  const Tensor& value;
  double dropout;
  bool causal;
  const std::optional<Tensor>& mask;
  std::optional<double> scale;
};

bool has_mask(const Inputs& in) { return in.mask.has_value() && in.mask->defined(); }

bool fits(int64_t size, int64_t whole) { return size == whole || size == 1; }

// (T, S) or (B, H, T, S), where any of them may be 1.
bool suits_mask(const Inputs& in) {
  const Tensor& mask = *in.mask;
  const int64_t dim = mask.dim();
  const bool known_dtype =
      mask.scalar_type() == in.query.scalar_type() || (mask.scalar_type() == at::kFloat);
  return known_dtype && (dim == 2 || dim == 4) && fits(mask.size(-1), in.key.size(2)) &&
         fits(mask.size(-2), in.query.size(2)) &&
         (dim == 2 ||
          (fits(mask.size(0), in.query.size(0)) && fits(mask.size(1), in.query.size(1))));
}

// What LibTorch's kernel takes, and so does ours; what it refuses it shall say itself.
bool suits(const Inputs& in) {
  const Tensor& q = in.query;
  const auto like_query = [&q](const Tensor& t) {
    return t.dim() == 4 && t.size(0) == q.size(0) && t.size(1) == q.size(1) &&
           t.size(3) == q.size(3);
  };
  return in.dropout == 0 && q.dim() == 4 && like_query(in.key) && like_query(in.value) &&
         in.key.size(2) == in.value.size(2) && q.size(3) > 0 && (!has_mask(in) || suits_mask(in));
}

AttentionShape shape_of(ComputePath path, const Inputs& in) {
  const auto width = static_cast<double>(in.query.size(3));
  return {in.query.size(2), in.key.size(2),
          in.query.size(3), static_cast<float>(in.scale.value_or(1 / std::sqrt(width))),
          in.causal,        path == ComputePath::tf32};
}

// A tensor with the format in which its numbers are multiplied, and its matrix of one head.
struct Heads {
  Tensor tensor;
  Format format;

  Factor operator()(int64_t batch, int64_t head) const {
    const int64_t offset = batch * tensor.stride(0) + head * tensor.stride(1);
    return {static_cast<const char*>(tensor.const_data_ptr()) +
                offset * static_cast<int64_t>(tensor.element_size()),
            format, tensor.stride(2), tensor.stride(3)};
  }
};

Heads factors(ComputePath path, const Tensor& tensor) {
  return {in_lines(tensor), factor_format(path, tensor.scalar_type())};
}

Heads addends(const Tensor& tensor) {
  return {in_lines(tensor), tensor::format_of(tensor.scalar_type())};
}

class Masks {
 public:
  explicit Masks(const Inputs& in) {
    if (has_mask(in)) {
      const std::vector<int64_t> sizes = {in.query.size(0), in.query.size(1), in.query.size(2),
                                          in.key.size(2)};
      mask_ = in.mask->expand(sizes);
      mask_ = lies_in_lines() ? mask_ : in.mask->contiguous().expand(sizes);
      mask_ = lies_in_lines() ? mask_ : mask_.contiguous();
    }
  }

  AttentionMask operator()(int64_t batch, int64_t head) const {
    if (!mask_.defined()) {
      return {};
    }
    const int64_t offset = batch * mask_.stride(0) + head * mask_.stride(1);
    return {static_cast<const char*>(mask_.const_data_ptr()) +
                offset * static_cast<int64_t>(mask_.element_size()),
            tensor::format_of(mask_.scalar_type()), mask_.stride(2), mask_.stride(3)};
  }

 private:
  bool lies_in_lines() const {
    return mask_.stride(3) == 1 || (mask_.stride(3) == 0 && mask_.stride(2) == 1);
  }

  Tensor mask_;
};

AttentionOutput output(const Tensor& tensor, int64_t batch, int64_t head) {
  const int64_t offset = batch * tensor.stride(0) + head * tensor.stride(1);
  return {static_cast<char*>(tensor.mutable_data_ptr()) +
              offset * static_cast<int64_t>(tensor.element_size()),
          tensor::format_of(tensor.scalar_type()), tensor.stride(2)};
}

// In LibTorch's memory order: (B, T, H, E) seen as (B, H, T, E).
Tensor empty_like_heads(const Tensor& tensor) {
  return at::empty({tensor.size(0), tensor.size(2), tensor.size(1), tensor.size(3)},
                   tensor.options())
      .transpose(1, 2);
}

template <typename Call>
void for_each_head(const Tensor& query, const Call& call) {
  const int64_t heads = query.size(1);
  parallel_for(0, query.size(0) * heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      call(i / heads, i % heads);
    }
  });
}

std::tuple<Tensor, Tensor> flash_attention(const Tensor& query, const Tensor& key,
                                           const Tensor& value, double dropout, bool causal,
                                           const std::optional<Tensor>& mask,
                                           std::optional<double> scale) {
  const ComputePath path = compute_path(
      {query.scalar_type(), key.scalar_type(), value.scalar_type()}, CpuWork::attention);
  const Inputs in = {query, key, value, dropout, causal, mask, scale};
  if (path == ComputePath::stock || !suits(in)) {
    return at::cpu::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal,
                                                                mask, scale);
  }
  const Heads queries = factors(path, query);
  const Heads keys = factors(path, key);
  const Heads values = factors(path, value);
  const Masks masks(in);
  Tensor out = empty_like_heads(query);
  Tensor logsumexp =
      at::empty({query.size(0), query.size(2), query.size(1)}, query.options().dtype(at::kFloat))
          .transpose(1, 2);
  const AttentionShape shape = shape_of(path, in);
  for_each_head(query, [&](int64_t b, int64_t h) {
    attend(shape, {queries(b, h), keys(b, h), values(b, h), masks(b, h)}, output(out, b, h),
           {logsumexp.mutable_data_ptr<float>() + b * logsumexp.stride(0) + h * logsumexp.stride(1),
            logsumexp.stride(2)});
  });
  return {out, logsumexp};
}

std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& out, const Tensor& logsumexp, double dropout, bool causal,
    const std::optional<Tensor>& mask, std::optional<double> scale) {
  const ComputePath path = compute_path({grad_out.scalar_type(), query.scalar_type(),
                                         key.scalar_type(), value.scalar_type(), out.scalar_type()},
                                        CpuWork::attention);
  const Inputs in = {query, key, value, dropout, causal, mask, scale};
  const bool matches = grad_out.sizes() == query.sizes() && out.sizes() == query.sizes() &&
                       logsumexp.sizes() == query.sizes().slice(0, 3) &&
                       logsumexp.scalar_type() == at::kFloat;
  if (path == ComputePath::stock || !suits(in) || !matches) {
    return at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, query, key, value, out, logsumexp, dropout, causal, mask, scale);
  }
  const Heads queries = factors(path, query);
  const Heads keys = factors(path, key);
  const Heads values = factors(path, value);
  const Heads grads = factors(path, grad_out);
  // `out` meets `grad_out` in an elementwise sum only, which no tensor core computes.
  const Heads outs = addends(out);
  const Masks masks(in);
  Tensor grad_query = empty_like_heads(query);
  Tensor grad_key = empty_like_heads(key);
  Tensor grad_value = empty_like_heads(value);
  const AttentionShape shape = shape_of(path, in);
  for_each_head(query, [&](int64_t b, int64_t h) {
    attend_backward(
        shape, {queries(b, h), keys(b, h), values(b, h), masks(b, h)}, grads(b, h), outs(b, h),
        {logsumexp.const_data_ptr<float>() + b * logsumexp.stride(0) + h * logsumexp.stride(1),
         logsumexp.stride(2)},
        {output(grad_query, b, h), output(grad_key, b, h), output(grad_value, b, h)});
  });
  return {grad_query, grad_key, grad_value};
}

}  // namespace

void register_attention(torch::Library& library) {
  library.impl("_scaled_dot_product_flash_attention_for_cpu", &flash_attention);
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward", &flash_attention_backward);
}

}  // namespace mantissa::ops
