#include "mantissa/ops/attention.h"

#include <optional>
#include <tuple>

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_cpu_dispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>
#include <torch/library.h>

#include "mantissa/ops/compute_path.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

using at::Tensor;

// The mask is added to the scores, so it is widened and not rounded.
std::optional<Tensor> wide_mask(const std::optional<Tensor>& mask) {
  const bool narrow = mask.has_value() && mask->defined() && tensor::is_16bit(mask->scalar_type());
  return narrow ? std::optional(addend(*mask)) : mask;
}

std::tuple<Tensor, Tensor> flash_attention(const Tensor& query, const Tensor& key,
                                           const Tensor& value, double dropout_p, bool is_causal,
                                           const std::optional<Tensor>& mask,
                                           std::optional<double> scale) {
  const ComputePath path =
      compute_path({query.scalar_type(), key.scalar_type(), value.scalar_type()});
  if (path == ComputePath::stock) {
    return at::cpu::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p,
                                                                is_causal, mask, scale);
  }
  const auto [out, logsumexp] = at::cpu::_scaled_dot_product_flash_attention_for_cpu(
      factor(path, query), factor(path, key), factor(path, value), dropout_p, is_causal,
      wide_mask(mask), scale);
  return {out.to(query.scalar_type()), logsumexp};
}

std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& out, const Tensor& logsumexp, double dropout_p, bool is_causal,
    const std::optional<Tensor>& mask, std::optional<double> scale) {
  const ComputePath path =
      compute_path({grad_out.scalar_type(), query.scalar_type(), key.scalar_type(),
                    value.scalar_type(), out.scalar_type()});
  if (path == ComputePath::stock) {
    return at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, mask, scale);
  }
  // `out` meets `grad_out` in an elementwise sum only, which no tensor core computes.
  const auto [grad_query, grad_key, grad_value] =
      at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
          factor(path, grad_out), factor(path, query), factor(path, key), factor(path, value),
          addend(out), addend(logsumexp), dropout_p, is_causal, wide_mask(mask), scale);
  const at::ScalarType dtype = query.scalar_type();
  return {grad_query.to(dtype), grad_key.to(dtype), grad_value.to(dtype)};
}

}  // namespace

void register_attention(torch::Library& library) {
  library.impl("_scaled_dot_product_flash_attention_for_cpu", &flash_attention);
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward", &flash_attention_backward);
}

}  // namespace mantissa::ops
