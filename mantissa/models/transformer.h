#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::models {

/// Which positions a position may look at: those before it, or all.
enum class Attention { causal, bidirectional };

/// Whether dropout drops anything.
enum class Mode { training, evaluation };

/// What a training step computes again in backward instead of keeping it (tensor/recompute.h). Each
/// keeps less than the one before; all have the same gradients, bit for bit.
enum class Recompute {
  none,
  elementwise,  // norms, activations and casts; results of products and attention are kept
  block,        // all of a block: its input is kept
  full,         // all of a group of about sqrt(layers) blocks, and in its turn of each block
};

MANTISSA_API Recompute parse_recompute(std::string_view name);

struct TransformerOptions {
  int64_t vocabulary = 16;
  int64_t layers = 4;
  int64_t width = 128;     // D; a multiple of 2 * heads
  int64_t heads = 4;       // H
  int64_t mlp_ratio = 4;   // hidden width of the MLP over D
  double rope_base = 1e4;  // of the rotary frequencies
  double dropout = 0;      // of the embedding and of what each block adds twice; below 1
  Attention attention = Attention::causal;
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
/// It knows no precision: parameters are made in FP32, may be cast to a 16-bit format (see
/// amp::ParameterFormats), and run in whatever an autocast region makes of them. Three choices hold
/// in every format: the embedding and so the residual stream are FP32 (a table of few rows sums
/// thousands of gradients a row: in 16 bits the sum stops growing), rotary tables are computed in
/// FP32 and cast once, and logits are FP32.
///
///     Transformer model(options, seed);
///     at::Tensor loss = model.loss(tokens, targets);
class MANTISSA_API Transformer {
 public:
  /// `seed` decides every initial weight, bit for bit, for any number of threads and any `device`:
  /// they are drawn on the host.
  Transformer(const TransformerOptions& options, uint64_t seed, at::Device device = at::kCPU);

  Transformer(Transformer&&) = default;  // a copy would share the parameters
  Transformer& operator=(Transformer&&) = default;

  /// `tokens` (B, T) int64 -> logits (B, T, V) FP32. Masks of dropout are drawn from LibTorch's
  /// default CPU generator.
  at::Tensor forward(const at::Tensor& tokens, Mode mode = Mode::training) const;

  /// Mean of -log p(target) in nats over the targets that are not -100: 0-d FP32.
  /// `tokens` and `targets` (B, T) int64. With `fused` head and loss are one operation,
  /// whose logits are FP32 and never whole; without it they are token_loss(forward(tokens),
  /// targets).
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets,
                  Mode mode = Mode::training) const;

  tensor::ParameterList parameters() const;

  /// The paths of its forward pass (tensor::Scope), for globs of a policy.
  std::vector<std::string> scopes() const;

  const TransformerOptions& options() const { return options_; }

 private:
  struct Norm {
    at::Tensor weight, bias;  // (D)
  };
  struct Block {
    Norm attention_norm, mlp_norm;
    at::Tensor qkv;   // (3D, D)
    at::Tensor out;   // (D, D)
    at::Tensor up;    // (mlp_ratio * D, D)
    at::Tensor down;  // (D, mlp_ratio * D)
  };

  // The residual stream: x + branch, added up where it is next normalized.
  struct Stream {
    at::Tensor x;
    at::Tensor branch;  // undefined before the first block
  };

  TransformerOptions options_in(Mode mode) const;
  at::Tensor hidden(const at::Tensor& tokens, Mode mode) const;  // (B, T, D), what the head reads

  // What is called again in backward takes what it needs by value: the model may have moved.
  static Stream recompute(const Stream& stream, const std::function<Stream(const Stream&)>& run);
  static Stream run_blocks(const TransformerOptions& options, const std::vector<Block>& blocks,
                           size_t first, size_t last, Stream stream);
  static Stream run_block(const TransformerOptions& options, const Block& block, Stream stream);
  static at::Tensor attend(const TransformerOptions& options, const at::Tensor& qkv);
  static at::Tensor normalize(const TransformerOptions& options, const Norm& norm,
                              const at::Tensor& x);
  // Adds the branch to x first.
  static at::Tensor normalize_sum(const TransformerOptions& options, const Norm& norm,
                                  Stream& stream);
  static at::Tensor norm_linear(const TransformerOptions& options, const Norm& norm,
                                const at::Tensor& weight, Stream& stream);

  TransformerOptions options_;
  at::Tensor embedding_;  // (V, D)
  std::vector<Block> blocks_;
  Norm final_norm_;
};

/// Mean of -log p(target) in nats over the targets that are not -100: 0-d, FP32 also for logits of
/// 16 bits. `logits` (B, T, V), `targets` (B, T) int64.
MANTISSA_API at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace mantissa::models
