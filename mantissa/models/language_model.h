#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::models {

/// Which positions a position may look at: those before it and itself, or all.
enum class Direction { causal, bidirectional };

/// Whether dropout drops anything.
enum class Mode { training, evaluation };

/// What a training step computes again in backward instead of keeping it (tensor/recompute.h). Each
/// keeps less than the one before; all have the same gradients, bit for bit.
enum class Recompute {
  none,
  elementwise,  // norms, activations, gates and casts; results of products, attention and long
                // convolutions are kept
  block,        // all of a block: its input is kept
  full,         // all of a group of about sqrt(layers) blocks, and in its turn of each block
};

MANTISSA_API Recompute parse_recompute(std::string_view name);

/// Predicts tokens from tokens. It knows no precision: parameters are made in FP32, may be cast to
/// a 16-bit format (amp::ParameterFormats), and run in whatever an autocast region makes of them.
///
/// A reverse-complement equivariant one, made with the complement of each token, gives for the
/// other strand of a sequence the same as for the sequence, read from the other end:
///
///     logits(rc(x))[t][v] = logits(x)[T - 1 - t][complement(v)]
///
/// The scheme is that of Caduceus-PS (Schiff et al., 2024): all blocks run on both strands with the
/// same weights, and the logits of one are added to those of the other, turned round. So it takes
/// twice the activations, and each position sees what is before it on either strand, which is all:
/// as a causal model it would see what it is to predict, and is refused.
class MANTISSA_API LanguageModel {
 public:
  virtual ~LanguageModel();
  LanguageModel(const LanguageModel&) = delete;  // a copy would share the parameters
  LanguageModel& operator=(const LanguageModel&) = delete;

  /// `tokens` (B, T) int64 -> logits (B, T, V) FP32. Masks of dropout are drawn from LibTorch's
  /// default CPU generator.
  virtual at::Tensor forward(const at::Tensor& tokens, Mode mode) const = 0;

  /// Mean of -log p(target) in nats over the targets that are not -100: 0-d FP32.
  /// `tokens` and `targets` (B, T) int64.
  virtual at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets, Mode mode) const = 0;

  at::Tensor forward(const at::Tensor& tokens) const { return forward(tokens, Mode::training); }
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets) const {
    return loss(tokens, targets, Mode::training);
  }

  virtual tensor::ParameterList parameters() const = 0;

  /// The paths of its forward pass (tensor::Scope), for globs of a policy.
  virtual std::vector<std::string> scopes() const = 0;

 protected:
  LanguageModel() = default;
  LanguageModel(LanguageModel&&) = default;
  LanguageModel& operator=(LanguageModel&&) = default;
};

/// Mean of -log p(target) in nats over the targets that are not -100: 0-d, FP32 also for logits of
/// 16 bits. `logits` (B, T, V), `targets` (B, T) int64.
MANTISSA_API at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace mantissa::models
