// Shapes: B sequences, T tokens, D width, H heads, W = D / H, V vocabulary.
#include "mantissa/models/transformer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

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
#include "mantissa/ops/dropout.h"
#include "mantissa/ops/embedding.h"
#include "mantissa/ops/linear_cross_entropy.h"
#include "mantissa/ops/norm.h"
#include "mantissa/ops/rotary.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/recompute.h"
#include "mantissa/tensor/scope.h"
#include "mantissa/tensor/shapes_only.h"

namespace mantissa::models {
namespace {

using tensor::Tensors;

constexpr double kNormEpsilon = 1e-5;
constexpr uint64_t kInitStream = 0x696e6974;  // one stream per parameter from here on

at::Tensor drop(const TransformerOptions& options, const at::Tensor& x) {
  return ops::dropout(x, options.dropout);
}

at::Tensor normal_parameter(std::initializer_list<int64_t> shape, double deviation, uint64_t seed,
                            uint64_t index, at::Device device) {
  at::Tensor parameter = at::empty(shape, at::kFloat);
  if (tensor::is_shapes_only()) {
    return parameter.to(device).requires_grad_();
  }
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
  MANTISSA_CHECK(o.dropout >= 0 && o.dropout < 1, InvalidArgument, "transformer: dropout is ",
                 o.dropout, "; pass a probability below 1");
}

void check_targets(const at::Tensor& targets, at::IntArrayRef shape) {
  MANTISSA_CHECK(targets.sizes() == shape && targets.scalar_type() == at::kLong, InvalidArgument,
                 "token_loss: targets have shape ", targets.sizes(), " and dtype ",
                 targets.scalar_type(), "; pass int64 of the tokens' shape ", shape);
}

}  // namespace

Recompute parse_recompute(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Recompute>, 4> kNames = {
      {{"none", Recompute::none},
       {"elementwise", Recompute::elementwise},
       {"block", Recompute::block},
       {"full", Recompute::full}}};
  for (const auto& [known, value] : kNames) {
    if (known == name) {
      return value;
    }
  }
  throw InvalidArgument(
      concat("recompute: unknown \"", name, "\"; valid: none elementwise block full"));
}

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

at::Tensor Transformer::normalize(const TransformerOptions& options, const Norm& norm,
                                  const at::Tensor& x) {
  if (options.fused) {
    return ops::layer_norm(x, norm.weight, norm.bias, kNormEpsilon);
  }
  // The residual stream is FP32 and layer_norm wants one dtype: the parameters are widened, not it.
  return at::layer_norm(x, {options.width}, norm.weight.to(x.scalar_type()),
                        norm.bias.to(x.scalar_type()), kNormEpsilon);
}

at::Tensor Transformer::normalize_sum(const TransformerOptions& options, const Norm& norm,
                                      Stream& stream) {
  const at::Tensor branch = std::exchange(stream.branch, at::Tensor());
  if (branch.defined() && options.fused) {
    at::Tensor normalized;
    std::tie(stream.x, normalized) =
        ops::add_layer_norm(branch, stream.x, norm.weight, norm.bias, kNormEpsilon);
    return normalized;
  }
  if (branch.defined()) {
    stream.x = stream.x.add(branch);
  }
  return normalize(options, norm, stream.x);
}

at::Tensor Transformer::norm_linear(const TransformerOptions& options, const Norm& norm,
                                    const at::Tensor& weight, Stream& stream) {
  const at::Tensor normalized = normalize_sum(options, norm, stream);
  if (options.recompute != Recompute::elementwise) {
    return at::linear(normalized, weight);
  }
  // The sum, which the norm keeps, gives its result once more.
  return tensor::recompute(
      {normalized}, [weight](const Tensors& in) { return Tensors{at::linear(in[0], weight)}; },
      {stream.x},
      [options, norm](const Tensors& in) { return Tensors{normalize(options, norm, in[0])}; })[0];
}

at::Tensor Transformer::attend(const TransformerOptions& options, const at::Tensor& qkv_BTD3) {
  const int64_t batch = qkv_BTD3.size(0);
  const int64_t length = qkv_BTD3.size(1);
  const bool causal = options.attention == Attention::causal;
  const at::Tensor qkv =
      qkv_BTD3.view({batch, length, 3, options.heads, options.width / options.heads});
  at::Tensor y_BTHW;
  if (options.fused) {
    y_BTHW = ops::rotary_attention(qkv, options.rope_base, causal);
  } else {
    const at::Tensor heads = qkv.permute({2, 0, 3, 1, 4});  // (3, B, H, T, W)
    y_BTHW = at::scaled_dot_product_attention(ops::rotate(heads.select(0, 0), options.rope_base),
                                              ops::rotate(heads.select(0, 1), options.rope_base),
                                              heads.select(0, 2), /*attn_mask=*/{},
                                              /*dropout_p=*/0.0, causal)
                 .transpose(1, 2);
  }
  return y_BTHW.reshape({batch, length, options.width});
}

Transformer::Stream Transformer::run_block(const TransformerOptions& options, const Block& block,
                                           Stream stream) {
  // Of what a product and an activation before it keep, the argument alone.
  const auto product = [&](const at::Tensor& x, const auto& function) {
    return options.recompute == Recompute::elementwise ? tensor::recompute(x, function)
                                                       : function(x);
  };
  {
    const tensor::Scope attention("attention");
    const at::Tensor y =
        attend(options, norm_linear(options, block.attention_norm, block.qkv, stream));
    stream.branch = drop(options, product(y, [weight = block.out](const at::Tensor& in) {
                           return at::linear(in, weight);
                         }));
  }
  const tensor::Scope mlp("mlp");
  const at::Tensor hidden = norm_linear(options, block.mlp_norm, block.up, stream);
  stream.branch = drop(
      options, product(hidden, [weight = block.down, fused = options.fused](const at::Tensor& in) {
        return fused ? ops::gelu_linear(in, weight) : at::linear(at::gelu(in, "tanh"), weight);
      }));
  return stream;
}

Transformer::Stream Transformer::recompute(const Stream& stream,
                                           const std::function<Stream(const Stream&)>& run) {
  const Tensors out = tensor::recompute({stream.x, stream.branch}, [run](const Tensors& in) {
    const Stream result = run({in[0], in[1]});
    return Tensors{result.x, result.branch};
  });
  return {out[0], out[1]};
}

Transformer::Stream Transformer::run_blocks(const TransformerOptions& options,
                                            const std::vector<Block>& blocks, size_t first,
                                            size_t last, Stream stream) {
  for (size_t i = first; i < last; ++i) {
    const tensor::Scope scope("blocks." + std::to_string(i));
    const auto run = [options, block = blocks[i]](const Stream& in) {
      return run_block(options, block, in);
    };
    stream = options.recompute >= Recompute::block ? recompute(stream, run) : run(stream);
  }
  return stream;
}

TransformerOptions Transformer::options_in(Mode mode) const {
  TransformerOptions options = options_;
  if (mode == Mode::evaluation) {
    options.dropout = 0;
  }
  return options;
}

at::Tensor Transformer::hidden(const at::Tensor& tokens, Mode mode) const {
  MANTISSA_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kLong, InvalidArgument,
                 "transformer: tokens have shape ", tokens.sizes(), " and dtype ",
                 tokens.scalar_type(), "; pass (batch, length) int64");
  const TransformerOptions options = options_in(mode);
  const at::Tensor x = options.fused ? ops::embedding(embedding_, tokens)
                                     : at::embedding(widened(embedding_), tokens);
  Stream stream = {drop(options, x), {}};
  const size_t count = blocks_.size();
  const auto group = static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  if (options.recompute == Recompute::full && group > 1) {
    for (size_t first = 0; first < count; first += group) {
      const size_t last = std::min(count, first + group);
      stream = recompute(stream, [options, blocks = blocks_, first, last](const Stream& in) {
        return run_blocks(options, blocks, first, last, in);
      });
    }
  } else {
    stream = run_blocks(options, blocks_, 0, count, stream);
  }
  const tensor::Scope head("head");
  return normalize_sum(options_, final_norm_, stream);
}

at::Tensor Transformer::forward(const at::Tensor& tokens, Mode mode) const {
  const at::Tensor x = hidden(tokens, mode);
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

at::Tensor Transformer::loss(const at::Tensor& tokens, const at::Tensor& targets, Mode mode) const {
  if (!options_.fused) {
    return token_loss(forward(tokens, mode), targets);
  }
  const at::Tensor x = hidden(tokens, mode);
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
