// Shapes: B sequences, T tokens, D width, H heads, W = D / H, V vocabulary.
#include "mantissa/models/transformer.h"

#include <cmath>
#include <string>
#include <tuple>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/ops/activation.h"
#include "mantissa/ops/linear_cross_entropy.h"
#include "mantissa/ops/norm.h"
#include "mantissa/ops/rotary.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::models {
namespace {

constexpr double kNormEpsilon = 1e-5;
constexpr uint64_t kInitStream = 0x696e6974;  // one stream per parameter from here on

at::Tensor normal_parameter(std::initializer_list<int64_t> shape, double deviation, uint64_t seed,
                            uint64_t index, at::Device device) {
  at::Tensor parameter = at::empty(shape, at::kFloat);
  Random random(seed, kInitStream + index);
  auto* values = parameter.mutable_data_ptr<float>();
  for (int64_t i = 0; i < parameter.numel(); ++i) {
    values[i] = static_cast<float>(deviation * random.normal());
  }
  return parameter.to(device).requires_grad_();
}

// (out, in) -> what keeps the variance of `in` inputs of variance one.
at::Tensor weight(int64_t out, int64_t in, double scale, uint64_t seed, uint64_t index,
                  at::Device device) {
  return normal_parameter({out, in}, scale / std::sqrt(static_cast<double>(in)), seed, index,
                          device);
}

// FP32 from a 16-bit format; FP32 and double as they are.
at::Tensor widened(const at::Tensor& x) {
  return tensor::is_16bit(x.scalar_type()) ? x.to(at::kFloat) : x;
}

void check(const TransformerOptions& o) {
  const auto positive = [](int64_t value, const char* name) {
    MANTISSA_CHECK(value > 0, InvalidArgument, "transformer: ", name, " is ", value,
                   "; it must be positive");
  };
  positive(o.vocabulary, "vocabulary");
  positive(o.layers, "layers");
  positive(o.width, "width");
  positive(o.heads, "heads");
  positive(o.mlp_ratio, "mlp_ratio");
  MANTISSA_CHECK(o.width % (2 * o.heads) == 0, InvalidArgument, "transformer: width ", o.width,
                 " with ", o.heads, " heads; the width must be a multiple of twice the heads");
  MANTISSA_CHECK(o.rope_base > 1 && std::isfinite(o.rope_base), InvalidArgument,
                 "transformer: rope_base is ", o.rope_base, "; it must be greater than 1");
}

void check_targets(const at::Tensor& targets, at::IntArrayRef shape) {
  MANTISSA_CHECK(targets.sizes() == shape && targets.scalar_type() == at::kLong, InvalidArgument,
                 "token_loss: targets have shape ", targets.sizes(), " and dtype ",
                 targets.scalar_type(), "; pass int64 of the tokens' shape ", shape);
}

}  // namespace

Transformer::Transformer(const TransformerOptions& options, uint64_t seed, at::Device device)
    : options_(options) {
  check(options);
  const int64_t d = options.width;
  const double residual_scale = 1 / std::sqrt(2.0 * static_cast<double>(options.layers));
  uint64_t index = 0;
  const auto norm = [d, device] {
    return Norm{at::ones({d}, device).requires_grad_(), at::zeros({d}, device).requires_grad_()};
  };
  embedding_ = weight(options.vocabulary, d, 1, seed, index++, device);  // `in` is of the tied head
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    Block block;
    block.attention_norm = norm();
    block.qkv = weight(3 * d, d, 1, seed, index++, device);
    block.out = weight(d, d, residual_scale, seed, index++, device);
    block.mlp_norm = norm();
    block.up = weight(options.mlp_ratio * d, d, 1, seed, index++, device);
    block.down = weight(d, options.mlp_ratio * d, residual_scale, seed, index++, device);
    blocks_.push_back(std::move(block));
  }
  final_norm_ = norm();
}

tensor::ParameterList Transformer::parameters() const {
  tensor::ParameterList list = {{"embedding.weight", embedding_}};
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const std::string prefix = "blocks." + std::to_string(i) + ".";
    const Block& block = blocks_[i];
    list.push_back({prefix + "attention_norm.weight", block.attention_norm.weight});
    list.push_back({prefix + "attention_norm.bias", block.attention_norm.bias});
    list.push_back({prefix + "attention.qkv.weight", block.qkv});
    list.push_back({prefix + "attention.out.weight", block.out});
    list.push_back({prefix + "mlp_norm.weight", block.mlp_norm.weight});
    list.push_back({prefix + "mlp_norm.bias", block.mlp_norm.bias});
    list.push_back({prefix + "mlp.up.weight", block.up});
    list.push_back({prefix + "mlp.down.weight", block.down});
  }
  list.push_back({"final_norm.weight", final_norm_.weight});
  list.push_back({"final_norm.bias", final_norm_.bias});
  return list;
}

at::Tensor Transformer::normalize(const Norm& norm, const at::Tensor& x) const {
  if (options_.fused) {
    return ops::layer_norm(x, norm.weight, norm.bias, kNormEpsilon);
  }
  // The residual stream is FP32 and layer_norm wants one dtype: the parameters are widened, not it.
  return at::layer_norm(x, {options_.width}, norm.weight.to(x.scalar_type()),
                        norm.bias.to(x.scalar_type()), kNormEpsilon);
}

at::Tensor Transformer::normalize_sum(const Norm& norm, at::Tensor& x,
                                      const at::Tensor& branch) const {
  if (options_.fused) {
    at::Tensor normalized;
    std::tie(x, normalized) = ops::add_layer_norm(branch, x, norm.weight, norm.bias, kNormEpsilon);
    return normalized;
  }
  x = x.add(branch);
  return normalize(norm, x);
}

at::Tensor Transformer::attend(const Block& block, const at::Tensor& x_BTD) const {
  const int64_t batch = x_BTD.size(0);
  const int64_t length = x_BTD.size(1);
  const bool causal = options_.attention == Attention::causal;
  const at::Tensor qkv =
      at::linear(x_BTD, block.qkv)
          .view({batch, length, 3, options_.heads, options_.width / options_.heads});
  at::Tensor y_BTHW;
  if (options_.fused) {
    y_BTHW = ops::rotary_attention(qkv, options_.rope_base, causal);
  } else {
    const at::Tensor heads = qkv.permute({2, 0, 3, 1, 4});  // (3, B, H, T, W)
    y_BTHW = at::scaled_dot_product_attention(ops::rotate(heads.select(0, 0), options_.rope_base),
                                              ops::rotate(heads.select(0, 1), options_.rope_base),
                                              heads.select(0, 2), /*attn_mask=*/{},
                                              /*dropout_p=*/0.0, causal)
                 .transpose(1, 2);
  }
  return at::linear(y_BTHW.reshape({batch, length, options_.width}), block.out);
}

at::Tensor Transformer::transform(const Block& block, const at::Tensor& x) const {
  const at::Tensor hidden = at::linear(x, block.up);
  return options_.fused ? ops::gelu_linear(hidden, block.down)
                        : at::linear(at::gelu(hidden, "tanh"), block.down);
}

at::Tensor Transformer::hidden(const at::Tensor& tokens) const {
  MANTISSA_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kLong, InvalidArgument,
                 "transformer: tokens have shape ", tokens.sizes(), " and dtype ",
                 tokens.scalar_type(), "; pass (batch, length) int64");
  at::Tensor x = at::embedding(widened(embedding_), tokens);
  at::Tensor branch;  // to be added to x where it is next normalized
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    const tensor::Scope scope("blocks." + std::to_string(i));
    {
      const tensor::Scope attention("attention");
      branch = attend(block, i == 0 ? normalize(block.attention_norm, x)
                                    : normalize_sum(block.attention_norm, x, branch));
    }
    const tensor::Scope mlp("mlp");
    branch = transform(block, normalize_sum(block.mlp_norm, x, branch));
  }
  const tensor::Scope head("head");
  return normalize_sum(final_norm_, x, branch);
}

at::Tensor Transformer::forward(const at::Tensor& tokens) const {
  const at::Tensor x = hidden(tokens);
  const tensor::Scope head("head");
  return widened(at::linear(x, embedding_));
}

std::vector<std::string> Transformer::scopes() const {
  std::vector<std::string> paths;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const std::string block = "blocks." + std::to_string(i);
    paths.insert(paths.end(), {block, block + ".attention", block + ".mlp"});
  }
  paths.emplace_back("head");
  return paths;
}

at::Tensor Transformer::loss(const at::Tensor& tokens, const at::Tensor& targets) const {
  if (!options_.fused) {
    return token_loss(forward(tokens), targets);
  }
  const at::Tensor x = hidden(tokens);
  check_targets(targets, tokens.sizes());
  const tensor::Scope head("head");
  return ops::linear_cross_entropy(x.flatten(0, 1), embedding_, {}, targets.flatten());
}

at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& targets) {
  MANTISSA_CHECK(logits.dim() == 3, InvalidArgument, "token_loss: logits have shape ",
                 logits.sizes(), "; pass (batch, length, vocabulary)");
  check_targets(targets, logits.sizes().slice(0, 2));
  return at::cross_entropy_loss(widened(logits).flatten(0, 1), targets.flatten());
}

}  // namespace mantissa::models
