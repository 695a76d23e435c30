// Shapes: B sequences, T tokens, D width, H heads, W = D / H.
#include "mantissa/models/transformer.h"

#include <cmath>
#include <utility>

#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "mantissa/base/error.h"
#include "mantissa/models/residual_stack.h"
#include "mantissa/ops/rotary.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::models {
namespace {

constexpr const char* kName = "transformer";

StackOptions stack_options(const TransformerOptions& o) {
  return {kName,   o.vocabulary, o.layers,    o.width,     o.dropout,
          o.fused, o.recompute,  o.direction, o.complement};
}

void check(const TransformerOptions& o) {
  check(stack_options(o));
  require_positive(kName, o.heads, "heads");
  require_positive(kName, o.mlp_ratio, "mlp_ratio");
  MANTISSA_CHECK(o.width % (2 * o.heads) == 0, InvalidArgument, "transformer: width ", o.width,
                 " with ", o.heads, " heads; the width must be a multiple of twice the heads");
  MANTISSA_CHECK(o.rope_base > 1 && std::isfinite(o.rope_base), InvalidArgument,
                 "transformer: rope_base is ", o.rope_base, "; it must be greater than 1");
}

at::Tensor attend(const TransformerOptions& options, const at::Tensor& qkv_BTD3) {
  const int64_t batch = qkv_BTD3.size(0);
  const int64_t length = qkv_BTD3.size(1);
  const bool causal = options.direction == Direction::causal;
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

}  // namespace

struct Transformer::Block {
  Norm attention_norm, mlp_norm;
  Linear qkv;   // (3D, D)
  Linear out;   // (D, D)
  Linear up;    // (mlp_ratio * D, D)
  Linear down;  // (D, mlp_ratio * D)
};

Transformer::Transformer(const TransformerOptions& options, uint64_t seed, at::Device device)
    : options_(options) {
  check(options);
  const int64_t d = options.width;
  const double residual_scale = 1 / std::sqrt(2.0 * static_cast<double>(options.layers));
  InitialWeights weights(seed, device);
  stack_ = std::make_unique<const ResidualStack>(stack_options(options), weights, device);
  std::vector<Block> blocks;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    Block block;
    block.attention_norm = weights.norm(d);
    block.qkv.weight = weights.weight(3 * d, d);
    block.out.weight = weights.weight(d, d, residual_scale);
    block.mlp_norm = weights.norm(d);
    block.up.weight = weights.weight(options.mlp_ratio * d, d);
    block.down.weight = weights.weight(d, options.mlp_ratio * d, residual_scale);
    blocks.push_back(std::move(block));
  }
  blocks_ = std::make_shared<const std::vector<Block>>(std::move(blocks));
}

Transformer::~Transformer() = default;
Transformer::Transformer(Transformer&&) noexcept = default;
Transformer& Transformer::operator=(Transformer&&) noexcept = default;

tensor::ParameterList Transformer::parameters() const {
  tensor::ParameterList list = {{"embedding.weight", stack_->embedding()}};
  for (size_t i = 0; i < blocks_->size(); ++i) {
    const std::string prefix = "blocks." + std::to_string(i) + ".";
    const Block& block = (*blocks_)[i];
    append(list, prefix + "attention_norm", block.attention_norm);
    append(list, prefix + "attention.qkv", block.qkv);
    append(list, prefix + "attention.out", block.out);
    append(list, prefix + "mlp_norm", block.mlp_norm);
    append(list, prefix + "mlp.up", block.up);
    append(list, prefix + "mlp.down", block.down);
  }
  append(list, "final_norm", stack_->final_norm());
  return list;
}

std::vector<std::string> Transformer::scopes() const {
  std::vector<std::string> paths;
  for (size_t i = 0; i < blocks_->size(); ++i) {
    const std::string block = "blocks." + std::to_string(i);
    paths.insert(paths.end(), {block, block + ".attention", block + ".mlp"});
  }
  paths.emplace_back("head");
  return paths;
}

namespace {

// Of a block with what a transformer's has.
template <typename Blocks>
ResidualStack::Block run(const TransformerOptions& transformer, const Blocks& blocks) {
  return [transformer, blocks](const StackOptions& options, size_t index, Stream stream) {
    const auto& block = (*blocks)[index];
    {
      const tensor::Scope attention("attention");
      const at::Tensor y =
          attend(transformer, norm_linear(options, block.attention_norm, block.qkv, stream));
      stream.branch =
          drop(options, light(options, {y}, [out = block.out](const tensor::Tensors& in) {
                 return apply(out, in[0]);
               }));
    }
    return mlp(options, block.mlp_norm, block.up, block.down, std::move(stream));
  };
}

}  // namespace

at::Tensor Transformer::forward(const at::Tensor& tokens, Mode mode) const {
  return stack_->forward(tokens, mode, run(options_, blocks_));
}

at::Tensor Transformer::loss(const at::Tensor& tokens, const at::Tensor& targets, Mode mode) const {
  return stack_->loss(tokens, targets, mode, run(options_, blocks_));
}

}  // namespace mantissa::models
