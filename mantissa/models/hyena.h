#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/models/implicit_filter.h"
#include "mantissa/models/language_model.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::models {

class ResidualStack;

struct HyenaOptions {
  int64_t vocabulary = 16;
  int64_t layers = 2;
  int64_t width = 128;    // D
  int64_t order = 2;      // N: gates, and long convolutions one fewer
  int64_t mlp_ratio = 4;  // hidden width of the MLP over D
  int64_t short_taps = 3;
  ImplicitFilterOptions filter = {};  // positions: the longest sequence
  double dropout = 0;                 // of the embedding and of what each block adds twice; below 1
  Direction direction = Direction::causal;
  // Of each token, where the model is to be reverse-complement equivariant (LanguageModel); else
  // empty. A bidirectional one only.
  std::vector<int64_t> complement = {};
  // By our operations, as TransformerOptions::fused, and ops/long_convolution.h; without it by
  // LibTorch's, with convolutions by rfft and irfft of twice the length in FP32.
  bool fused = true;
  Recompute recompute = Recompute::none;
};

/// Options with the layers, the width and the positions of a model that HyenaDNA has published:
/// tiny-1k, tiny-1k-d256, tiny-16k-d128, small-32k, medium-160k, medium-450k, large-1m. Two
/// positions more than bases, for special tokens. Throws InvalidArgument with the nearest name.
MANTISSA_API HyenaOptions hyena_size(std::string_view name);
MANTISSA_API std::vector<std::string> hyena_sizes();

/// The language model of HyenaDNA (Nguyen et al., 2023), whose blocks mix positions by the
/// operator of Hyena (Poli et al., 2023) in place of attention:
///
///     u = in(norm(x)), its N + 1 parts each through a causal convolution of a few taps: x_0 ...
///     x_{N-1} and v
///     v = x_{N-1} v; for i from 1 to N - 1: v = x_{N-1-i} convolution(v, filter_i)
///     x += out(v);  x += down(gelu(up(norm(x))))
///
/// with filters as long as the sequence (ImplicitFilter), each with a bias for the number itself;
/// channel d of convolution i has filter d (N - 1) + i - 1. Linear layers have biases, norms an
/// epsilon of 1e-5; the head is tied to the embedding.
///
/// A bidirectional one has, as Caduceus's BiMamba (Schiff et al., 2024), a second set of short
/// convolutions and filters per block, which read the sequence backwards; `in` and `out` are shared
/// and both results added.
///
/// Linear layers and short convolutions start at N(0, 1/inputs), those that write to the residual
/// stream scaled by 1/sqrt(2 * layers), filters as ImplicitFilter says, their biases at N(0, 1).
/// Besides what LanguageModel and Transformer say of precision: the features of positions and the
/// windows are FP32, and convolutions are FP32 inside; the filters' networks run as the region says
/// in their scopes, `blocks.*.hyena.filter`, which policies are to keep in FP32.
class MANTISSA_API Hyena final : public LanguageModel {
 public:
  Hyena(const HyenaOptions& options, uint64_t seed, at::Device device = at::kCPU);
  ~Hyena() override;
  Hyena(Hyena&&) noexcept;
  Hyena& operator=(Hyena&&) noexcept;

  using LanguageModel::forward;
  using LanguageModel::loss;

  /// Throws InvalidArgument for sequences longer than the filters' positions.
  at::Tensor forward(const at::Tensor& tokens, Mode mode) const override;
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets, Mode mode) const override;
  tensor::ParameterList parameters() const override;
  std::vector<std::string> scopes() const override;

  /// The first `length` taps (length, D (N - 1)) of a block's filters, without their biases.
  at::Tensor filters(int64_t block, int64_t length) const;

  const HyenaOptions& options() const { return options_; }

 private:
  struct Mixer;
  struct Block;
  struct Run;

  FilterPositions positions(int64_t length) const;
  Run run(const at::Tensor& tokens) const;

  HyenaOptions options_;
  std::unique_ptr<const ResidualStack> stack_;
  std::shared_ptr<const std::vector<Block>> blocks_;
  at::Tensor features_;  // (P, 1 + 2 bands)
};

}  // namespace mantissa::models
