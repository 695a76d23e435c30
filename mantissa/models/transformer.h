#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/models/language_model.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::models {

class ResidualStack;

struct TransformerOptions {
  int64_t vocabulary = 16;
  int64_t layers = 4;
  int64_t width = 128;     // D; a multiple of 2 * heads
  int64_t heads = 4;       // H
  int64_t mlp_ratio = 4;   // hidden width of the MLP over D
  double rope_base = 1e4;  // of the rotary frequencies
  double dropout = 0;      // of the embedding and of what each block adds twice; below 1
  Direction direction = Direction::causal;
  // Of each token, where the model is to be reverse-complement equivariant (LanguageModel); else
  // empty. A bidirectional one only.
  std::vector<int64_t> complement = {};
  // The embedding, the norms, the MLP's activation, the rotary attention and the loss by
  // our operations (ops/embedding.h, norm.h, activation.h, rotary.h,
  // linear_cross_entropy.h) or, without it, by LibTorch's: slower, with more memory, and what
  // at::autocast knows.
  bool fused = true;
  Recompute recompute = Recompute::none;
};

/// A pre-norm transformer over tokens: rotary positions (Su et al., RoFormer, 2021), LayerNorm,
/// GELU in its tanh form, no biases in the linear layers, the head tied to the embedding,
/// initialized N(0, 1/inputs) (LeCun et al., Efficient BackProp, 1998), the two projections that
/// write to the residual stream scaled by 1/sqrt(2 * layers) as in GPT-2 (Radford et al., 2019).
/// GPT-2's own 0.02 is meant for widths of 768 and more: at 128 it learns much slower.
///
/// Three choices hold in every format: the embedding and so the residual stream are FP32 (a table
/// of few rows sums thousands of gradients a row: in 16 bits the sum stops growing), rotary tables
/// are computed in FP32 and cast once, and logits are FP32. With `fused` head and loss are one
/// operation, whose logits are FP32 and never whole; without it the loss is
/// token_loss(forward(tokens), targets).
///
///     Transformer model(options, seed);
///     at::Tensor loss = model.loss(tokens, targets);
class MANTISSA_API Transformer final : public LanguageModel {
 public:
  /// `seed` decides every initial weight, bit for bit, for any number of threads and any `device`:
  /// they are drawn on the host.
  Transformer(const TransformerOptions& options, uint64_t seed, at::Device device = at::kCPU);
  ~Transformer() override;
  Transformer(Transformer&&) noexcept;
  Transformer& operator=(Transformer&&) noexcept;

  using LanguageModel::forward;
  using LanguageModel::loss;
  at::Tensor forward(const at::Tensor& tokens, Mode mode) const override;
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets, Mode mode) const override;
  tensor::ParameterList parameters() const override;
  std::vector<std::string> scopes() const override;

  const TransformerOptions& options() const { return options_; }

 private:
  struct Block;

  TransformerOptions options_;
  std::unique_ptr<const ResidualStack> stack_;
  std::shared_ptr<const std::vector<Block>> blocks_;
};

}  // namespace mantissa::models
