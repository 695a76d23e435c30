#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/models/initial_weights.h"
#include "mantissa/models/language_model.h"
#include "mantissa/tensor/parameter_list.h"
#include "mantissa/tensor/recompute.h"

namespace mantissa::models {

/// The residual stream: x + branch, added up where it is next normalized.
struct Stream {
  at::Tensor x;       // (B, T, D), FP32
  at::Tensor branch;  // undefined before the first block
};

/// What language models of pre-norm blocks have in common.
struct StackOptions {
  std::string model;  // for messages
  int64_t vocabulary = 0;
  int64_t layers = 0;
  int64_t width = 0;
  double dropout = 0;
  bool fused = true;
  Recompute recompute = Recompute::none;
  Direction direction = Direction::causal;
  std::vector<int64_t> complement = {};
};

/// Throws InvalidArgument for a value out of range and a complement that is none.
void check(const StackOptions& options);

/// Throws InvalidArgument, beginning with the model's name, unless `value` is positive.
void require_positive(const std::string& model, int64_t value, const char* name);

/// `label.weight` and `label.bias` where there is one.
void append(tensor::ParameterList& list, const std::string& label, const Linear& linear);
void append(tensor::ParameterList& list, const std::string& label, const Norm& norm);

/// Embedding, blocks, a last norm, and a head that is tied to the embedding.
class ResidualStack {
 public:
  /// Block `index` on a stream. It is called again in backward where a policy of recomputation says
  /// so: it holds what it needs, for the model may be gone.
  using Block = std::function<Stream(const StackOptions& options, size_t index, Stream stream)>;

  /// Draws the embedding.
  ResidualStack(const StackOptions& options, InitialWeights& weights, at::Device device);

  at::Tensor forward(const at::Tensor& tokens, Mode mode, const Block& block) const;
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets, Mode mode,
                  const Block& block) const;

  const StackOptions& options() const { return options_; }
  const at::Tensor& embedding() const { return embedding_; }
  const Norm& final_norm() const { return final_norm_; }

 private:
  at::Tensor hidden(const at::Tensor& tokens, Mode mode, const Block& block) const;
  at::Tensor other_strand(const at::Tensor& tokens) const;
  at::Tensor head() const;

  StackOptions options_;
  at::Tensor embedding_;   // (V, D)
  at::Tensor complement_;  // (V) int64; undefined without equivariance
  Norm final_norm_;
};

// Parts of blocks.

/// The norm of the stream, whose branch is added to it first, and a product.
at::Tensor norm_linear(const StackOptions& options, const Norm& norm, const Linear& linear,
                       Stream& stream);

at::Tensor apply(const Linear& linear, const at::Tensor& x);

/// function(inputs), of which with Recompute::elementwise the inputs alone are kept.
at::Tensor light(const StackOptions& options, const tensor::Tensors& inputs,
                 const std::function<at::Tensor(const tensor::Tensors&)>& function);

at::Tensor drop(const StackOptions& options, const at::Tensor& x);

/// The second half of a block, down(gelu(up(norm(stream)))), as its new branch. In the scope `mlp`.
Stream mlp(const StackOptions& options, const Norm& norm, const Linear& up, const Linear& down,
           Stream stream);

/// FP32 from a 16-bit format; FP32 and double as they are.
at::Tensor widened(const at::Tensor& x);

/// Throws InvalidArgument for targets that are not int64 of that shape.
void check_targets(const at::Tensor& targets, at::IntArrayRef shape);

}  // namespace mantissa::models
