// Shapes: B sequences, T tokens, D width, V vocabulary.
#include "mantissa/models/residual_stack.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/take.h>
#include <ATen/ops/tensor.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/activation.h"
#include "mantissa/ops/dropout.h"
#include "mantissa/ops/embedding.h"
#include "mantissa/ops/linear_cross_entropy.h"
#include "mantissa/ops/norm.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::models {
namespace {

using tensor::Tensors;

constexpr double kNormEpsilon = 1e-5;

void check_complement(const StackOptions& o) {
  if (o.complement.empty()) {
    return;
  }
  MANTISSA_CHECK(o.direction == Direction::bidirectional, InvalidArgument, o.model,
                 ": a causal model cannot be reverse-complement equivariant, for it would see on "
                 "the other strand what it is to predict; make it bidirectional");
  const auto of = [&](int64_t token) {
    return token >= 0 && token < std::ssize(o.complement) ? o.complement[static_cast<size_t>(token)]
                                                          : -1;
  };
  bool is_one = std::ssize(o.complement) == o.vocabulary;
  for (int64_t token = 0; token < o.vocabulary; ++token) {
    is_one = is_one && of(of(token)) == token;
  }
  MANTISSA_CHECK(is_one, InvalidArgument, o.model, ": complement has ", o.complement.size(),
                 " tokens, of a vocabulary of ", o.vocabulary,
                 "; give for each token the one whose complement it is in turn");
}

at::Tensor normalize(const StackOptions& options, const Norm& norm, const at::Tensor& x) {
  if (options.fused) {
    return ops::layer_norm(x, norm.weight, norm.bias, kNormEpsilon);
  }
  // The residual stream is FP32 and layer_norm wants one dtype: the parameters are widened, not it.
  return at::layer_norm(x, {options.width}, norm.weight.to(x.scalar_type()),
                        norm.bias.to(x.scalar_type()), kNormEpsilon);
}

// Adds the branch to x first.
at::Tensor normalize_sum(const StackOptions& options, const Norm& norm, Stream& stream) {
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

Stream recompute(const Stream& stream, const std::function<Stream(const Stream&)>& run) {
  const Tensors out = tensor::recompute({stream.x, stream.branch}, [run](const Tensors& in) {
    const Stream result = run({in[0], in[1]});
    return Tensors{result.x, result.branch};
  });
  return {out[0], out[1]};
}

Stream run_blocks(const StackOptions& options, const ResidualStack::Block& block, size_t first,
                  size_t last, Stream stream) {
  for (size_t i = first; i < last; ++i) {
    const tensor::Scope scope("blocks." + std::to_string(i));
    const auto run = [options, block, i](const Stream& in) { return block(options, i, in); };
    stream = options.recompute >= Recompute::block ? recompute(stream, run) : run(stream);
  }
  return stream;
}

}  // namespace

void require_positive(const std::string& model, int64_t value, const char* name) {
  MANTISSA_CHECK(value > 0, InvalidArgument, model, ": ", name, " is ", value,
                 "; it must be positive");
}

void check(const StackOptions& o) {
  require_positive(o.model, o.vocabulary, "vocabulary");
  require_positive(o.model, o.layers, "layers");
  require_positive(o.model, o.width, "width");
  MANTISSA_CHECK(o.dropout >= 0 && o.dropout < 1, InvalidArgument, o.model, ": dropout is ",
                 o.dropout, "; pass a probability below 1");
  check_complement(o);
}

void check_targets(const at::Tensor& targets, at::IntArrayRef shape) {
  MANTISSA_CHECK(targets.sizes() == shape && targets.scalar_type() == at::kLong, InvalidArgument,
                 "token_loss: targets have shape ", targets.sizes(), " and dtype ",
                 targets.scalar_type(), "; pass int64 of the tokens' shape ", shape);
}

at::Tensor widened(const at::Tensor& x) {
  return tensor::is_16bit(x.scalar_type()) ? x.to(at::kFloat) : x;
}

void append(tensor::ParameterList& list, const std::string& label, const Linear& linear) {
  list.push_back({label + ".weight", linear.weight});
  if (linear.bias.defined()) {
    list.push_back({label + ".bias", linear.bias});
  }
}

void append(tensor::ParameterList& list, const std::string& label, const Norm& norm) {
  list.push_back({label + ".weight", norm.weight});
  list.push_back({label + ".bias", norm.bias});
}

ResidualStack::ResidualStack(const StackOptions& options, InitialWeights& weights,
                             at::Device device)
    : options_(options),
      embedding_(weights.weight(options.vocabulary, options.width)),  // `in` is of the tied head
      final_norm_(weights.norm(options.width)) {
  if (!options.complement.empty()) {
    complement_ = at::tensor(options.complement, at::kLong).to(device);
  }
}

at::Tensor ResidualStack::other_strand(const at::Tensor& tokens) const {
  return at::take(complement_, tokens).flip(1);
}

at::Tensor ResidualStack::hidden(const at::Tensor& tokens, Mode mode, const Block& block) const {
  MANTISSA_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kLong, InvalidArgument,
                 options_.model, ": tokens have shape ", tokens.sizes(), " and dtype ",
                 tokens.scalar_type(), "; pass (batch, length) int64");
  StackOptions options = options_;
  if (mode == Mode::evaluation) {
    options.dropout = 0;
  }
  const bool both = complement_.defined();
  const at::Tensor strands = both ? at::cat({tokens, other_strand(tokens)}) : tokens;
  const at::Tensor x = options.fused ? ops::embedding(embedding_, strands)
                                     : at::embedding(widened(embedding_), strands);
  Stream stream = {drop(options, x), {}};
  const auto count = static_cast<size_t>(options.layers);
  const auto group = static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  if (options.recompute == Recompute::full && group > 1) {
    for (size_t first = 0; first < count; first += group) {
      const size_t last = std::min(count, first + group);
      stream = recompute(stream, [options, block, first, last](const Stream& in) {
        return run_blocks(options, block, first, last, in);
      });
    }
  } else {
    stream = run_blocks(options, block, 0, count, stream);
  }
  const tensor::Scope head("head");
  const at::Tensor last = normalize_sum(options, final_norm_, stream);
  if (!both) {
    return last;
  }
  const std::vector<at::Tensor> strand = last.chunk(2);
  return at::cat({strand[0], strand[1].flip(1)}, -1);
}

// (V, D), or (V, 2 D) for the hidden numbers of both strands: those of the other one are of the
// complement.
at::Tensor ResidualStack::head() const {
  return complement_.defined() ? at::cat({embedding_, embedding_.index_select(0, complement_)}, 1)
                               : embedding_;
}

at::Tensor ResidualStack::forward(const at::Tensor& tokens, Mode mode, const Block& block) const {
  const at::Tensor x = hidden(tokens, mode, block);
  const tensor::Scope scope("head");
  return widened(at::linear(x, head()));
}

at::Tensor ResidualStack::loss(const at::Tensor& tokens, const at::Tensor& targets, Mode mode,
                               const Block& block) const {
  if (!options_.fused) {
    return token_loss(forward(tokens, mode, block), targets);
  }
  const at::Tensor x = hidden(tokens, mode, block);
  check_targets(targets, tokens.sizes());
  const tensor::Scope scope("head");
  return ops::linear_cross_entropy(x.flatten(0, 1), head(), {}, targets.flatten());
}

at::Tensor apply(const Linear& linear, const at::Tensor& x) {
  return linear.bias.defined() ? at::linear(x, linear.weight, linear.bias)
                               : at::linear(x, linear.weight);
}

at::Tensor norm_linear(const StackOptions& options, const Norm& norm, const Linear& linear,
                       Stream& stream) {
  const at::Tensor normalized = normalize_sum(options, norm, stream);
  if (options.recompute != Recompute::elementwise) {
    return apply(linear, normalized);
  }
  // The sum, which the norm keeps, gives its result once more.
  return tensor::recompute(
      {normalized}, [linear](const Tensors& in) { return Tensors{apply(linear, in[0])}; },
      {stream.x},
      [options, norm](const Tensors& in) { return Tensors{normalize(options, norm, in[0])}; })[0];
}

at::Tensor light(const StackOptions& options, const Tensors& inputs,
                 const std::function<at::Tensor(const Tensors&)>& function) {
  return options.recompute == Recompute::elementwise
             ? tensor::recompute(inputs,
                                 [function](const Tensors& in) { return Tensors{function(in)}; })[0]
             : function(inputs);
}

at::Tensor drop(const StackOptions& options, const at::Tensor& x) {
  return ops::dropout(x, options.dropout);
}

Stream mlp(const StackOptions& options, const Norm& norm, const Linear& up, const Linear& down,
           Stream stream) {
  const tensor::Scope scope("mlp");
  const at::Tensor hidden = norm_linear(options, norm, up, stream);
  const auto activate = [down, fused = options.fused](const Tensors& in) {
    if (!fused) {
      return apply(down, at::gelu(in[0], "tanh"));
    }
    return down.bias.defined() ? ops::gelu_linear(in[0], down.weight, down.bias)
                               : ops::gelu_linear(in[0], down.weight);
  };
  stream.branch = drop(options, light(options, {hidden}, activate));
  return stream;
}

}  // namespace mantissa::models
