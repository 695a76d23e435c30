// Shapes: B sequences, T tokens, D width, N order, C = D (N - 1) filters.
#include "mantissa/models/hyena.h"

#include <array>
#include <cmath>
#include <utility>

#include <ATen/ops/conv1d.h>
#include <ATen/ops/fft_irfft.h>
#include <ATen/ops/fft_rfft.h>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
#include "mantissa/models/residual_stack.h"
#include "mantissa/ops/long_convolution.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::models {
namespace {

using tensor::Tensors;

constexpr const char* kName = "hyena";

struct Size {
  std::string_view name;
  int64_t layers;
  int64_t width;
  int64_t bases;
};

constexpr std::array<Size, 7> kSizes = {{{"tiny-1k", 2, 128, 1024},
                                         {"tiny-1k-d256", 2, 256, 1024},
                                         {"tiny-16k-d128", 2, 128, 16384},
                                         {"small-32k", 4, 256, 32768},
                                         {"medium-160k", 8, 256, 160000},
                                         {"medium-450k", 8, 256, 450000},
                                         {"large-1m", 8, 256, 1000000}}};

StackOptions stack_options(const HyenaOptions& o) {
  return {kName,   o.vocabulary, o.layers,    o.width,     o.dropout,
          o.fused, o.recompute,  o.direction, o.complement};
}

void check(const HyenaOptions& o) {
  check(stack_options(o));
  MANTISSA_CHECK(o.order >= 2, InvalidArgument, "hyena: order is ", o.order,
                 "; it must be at least 2, for one long convolution");
  require_positive(kName, o.mlp_ratio, "mlp_ratio");
  require_positive(kName, o.short_taps, "short_taps");
  check(kName, o.filter);
}

int64_t channels_of(const HyenaOptions& o) { return o.width * (o.order - 1); }

// ops::long_convolution by LibTorch.
at::Tensor stock_convolution(const at::Tensor& x, const at::Tensor& filter,
                             const at::Tensor& bias) {
  const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t size = 2 * x.size(-1);
  const at::Tensor product =
      at::fft_rfft(x.to(wide), size).mul(at::fft_rfft(filter.to(wide), size).div(size));
  const at::Tensor y = at::fft_irfft(product, size, -1, "forward").narrow(-1, 0, x.size(-1));
  return y.add(x.mul(bias.unsqueeze(-1))).to(x.scalar_type());
}

}  // namespace

HyenaOptions hyena_size(std::string_view name) {
  for (const Size& size : kSizes) {
    if (size.name == name) {
      return {.layers = size.layers, .width = size.width, .filter = {.positions = size.bases + 2}};
    }
  }
  throw InvalidArgument(
      concat("hyena: unknown size \"", name, "\"", suggestion(std::string(name), hyena_sizes())));
}

std::vector<std::string> hyena_sizes() {
  std::vector<std::string> names;
  for (const Size& size : kSizes) {
    names.emplace_back(size.name);
  }
  return names;
}

// Along one direction.
struct Hyena::Mixer {
  at::Tensor short_weight;  // ((N + 1) D, 1, taps)
  at::Tensor short_bias;    // ((N + 1) D)
  ImplicitFilter filter;
  at::Tensor bias;  // (C)

  Mixer(const HyenaOptions& o, InitialWeights& weights)
      : short_weight(weights.normal({(o.order + 1) * o.width, 1, o.short_taps},
                                    1 / std::sqrt(static_cast<double>(o.short_taps)))),
        short_bias(weights.constant({(o.order + 1) * o.width}, 0)),
        filter(o.filter, channels_of(o), weights),
        bias(weights.normal({channels_of(o)}, 1)) {}

  // Part `index` of in's result (B, D, T) through its short convolution.
  at::Tensor short_convolution(int64_t index, const at::Tensor& part) const {
    const int64_t width = part.size(1);
    const int64_t taps = short_weight.size(2);
    return at::conv1d(part, short_weight.narrow(0, index * width, width),
                      short_bias.narrow(0, index * width, width), 1, taps - 1, 1, width)
        .narrow(2, 0, part.size(2));
  }

  // All but the last gate: (B, D, T).
  at::Tensor convolve(const StackOptions& options, const Tensors& parts,
                      const FilterPositions& positions) const {
    const int64_t order = std::ssize(parts) - 1;
    const int64_t width = parts[0].size(1);
    Tensors taps;  // (D, T) of each convolution
    {
      const tensor::Scope scope("filter");
      const at::Tensor all = light(options, {positions.features, positions.window},
                                   [filter = filter](const Tensors& in) {
                                     return filter({in[0], in[1]});
                                   });
      for (int64_t i = 0; i < order - 1; ++i) {
        taps.push_back(all.view({all.size(0), width, order - 1}).select(2, i).t());
      }
    }
    at::Tensor y;
    for (int64_t i = 0; i < order - 1; ++i) {
      const int64_t gate = order - 1 - i;
      const bool first = i == 0;
      const at::Tensor gated =
          light(options, {first ? parts.back() : y, parts[static_cast<size_t>(gate)]},
                [mixer = *this, gate, first, order](const Tensors& in) {
                  const at::Tensor v = first ? mixer.short_convolution(order, in[0]) : in[0];
                  return v.mul(mixer.short_convolution(gate, in[1]));
                });
      const at::Tensor skip = bias.view({width, order - 1}).select(1, i);
      y = (options.fused ? ops::long_convolution(gated, taps[static_cast<size_t>(i)], skip)
                         : stock_convolution(gated, taps[static_cast<size_t>(i)], skip));
    }
    return y;
  }

  void append_to(tensor::ParameterList& list, const std::string& label) const {
    list.push_back({label + "short.weight", short_weight});
    list.push_back({label + "short.bias", short_bias});
    filter.append_to(list, label + "filter");
    list.push_back({label + "filter.bias", bias});
  }
};

struct Hyena::Block {
  Norm hyena_norm, mlp_norm;
  Linear in;                  // ((N + 1) D, D)
  std::vector<Mixer> mixers;  // forward, and backward where it is bidirectional
  Linear out;                 // (D, D)
  Linear up;                  // (mlp_ratio * D, D)
  Linear down;                // (D, mlp_ratio * D)

  at::Tensor mix(const StackOptions& options, const FilterPositions& positions,
                 const at::Tensor& u) const {
    const int64_t num_parts = u.size(2) / out.weight.size(0);
    const Tensors parts = u.transpose(1, 2).chunk(num_parts, 1);
    Tensors inputs = {parts[0]};
    for (size_t i = 0; i < mixers.size(); ++i) {
      if (i == 0) {
        inputs.push_back(mixers[i].convolve(options, parts, positions));
        continue;
      }
      const tensor::Scope scope("reverse");
      Tensors reversed;
      for (const at::Tensor& part : parts) {
        reversed.push_back(part.flip(2));
      }
      inputs.push_back(mixers[i].convolve(options, reversed, positions));
    }
    return light(options, inputs, [mixers = mixers, last = out](const Tensors& given) {
      at::Tensor v = given[1].mul(mixers[0].short_convolution(0, given[0]));
      if (mixers.size() > 1) {
        v = v.add(given[2].mul(mixers[1].short_convolution(0, given[0].flip(2))).flip(2));
      }
      return apply(last, v.transpose(1, 2));
    });
  }
};

struct Hyena::Run {
  std::shared_ptr<const std::vector<Block>> blocks;
  FilterPositions positions;

  Stream operator()(const StackOptions& options, size_t index, Stream stream) const {
    const Block& block = (*blocks)[index];
    {
      const tensor::Scope scope("hyena");
      const at::Tensor u = norm_linear(options, block.hyena_norm, block.in, stream);
      stream.branch = drop(options, block.mix(options, positions, u));
    }
    return mlp(options, block.mlp_norm, block.up, block.down, std::move(stream));
  }
};

Hyena::Hyena(const HyenaOptions& options, uint64_t seed, at::Device device) : options_(options) {
  check(options);
  const int64_t d = options.width;
  const double residual_scale = 1 / std::sqrt(2.0 * static_cast<double>(options.layers));
  InitialWeights weights(seed, device);
  stack_ = std::make_unique<const ResidualStack>(stack_options(options), weights, device);
  std::vector<Block> blocks;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    Block block;
    block.hyena_norm = weights.norm(d);
    block.in = weights.linear((options.order + 1) * d, d);
    block.mixers.emplace_back(options, weights);
    if (options.direction == Direction::bidirectional) {
      block.mixers.emplace_back(options, weights);
    }
    block.out = weights.linear(d, d, residual_scale);
    block.mlp_norm = weights.norm(d);
    block.up = weights.linear(options.mlp_ratio * d, d);
    block.down = weights.linear(d, options.mlp_ratio * d, residual_scale);
    blocks.push_back(std::move(block));
  }
  blocks_ = std::make_shared<const std::vector<Block>>(std::move(blocks));
  features_ = position_features(options.filter, at::kFloat).to(device);
}

Hyena::~Hyena() = default;
Hyena::Hyena(Hyena&&) noexcept = default;
Hyena& Hyena::operator=(Hyena&&) noexcept = default;

tensor::ParameterList Hyena::parameters() const {
  tensor::ParameterList list = {{"embedding.weight", stack_->embedding()}};
  for (size_t i = 0; i < blocks_->size(); ++i) {
    const std::string prefix = "blocks." + std::to_string(i) + ".";
    const Block& block = (*blocks_)[i];
    append(list, prefix + "hyena_norm", block.hyena_norm);
    append(list, prefix + "hyena.in", block.in);
    for (size_t m = 0; m < block.mixers.size(); ++m) {
      block.mixers[m].append_to(list, prefix + (m == 0 ? "hyena." : "hyena.reverse."));
    }
    append(list, prefix + "hyena.out", block.out);
    append(list, prefix + "mlp_norm", block.mlp_norm);
    append(list, prefix + "mlp.up", block.up);
    append(list, prefix + "mlp.down", block.down);
  }
  append(list, "final_norm", stack_->final_norm());
  return list;
}

std::vector<std::string> Hyena::scopes() const {
  std::vector<std::string> paths = {"positions"};
  for (size_t i = 0; i < blocks_->size(); ++i) {
    const std::string block = "blocks." + std::to_string(i);
    paths.insert(paths.end(), {block, block + ".hyena", block + ".hyena.filter"});
    if ((*blocks_)[i].mixers.size() > 1) {
      paths.insert(paths.end(), {block + ".hyena.reverse", block + ".hyena.reverse.filter"});
    }
    paths.push_back(block + ".mlp");
  }
  paths.emplace_back("head");
  return paths;
}

FilterPositions Hyena::positions(int64_t length) const {
  MANTISSA_CHECK(length <= options_.filter.positions, InvalidArgument, "hyena: a sequence of ",
                 length, " tokens, and filters of ", options_.filter.positions,
                 " positions; make the filters for longer sequences, or cut these");
  const tensor::Scope scope("positions");
  const at::ScalarType dtype = blocks_->front().mixers.front().filter.dtype();
  const at::Tensor features = dtype == at::kDouble
                                  ? position_features(options_.filter, dtype).to(features_.device())
                                  : features_;
  return {features.narrow(0, 0, length),
          decay_window(options_.filter, channels_of(options_), length, dtype, features_.device())};
}

at::Tensor Hyena::filters(int64_t block, int64_t length) const {
  MANTISSA_CHECK(block >= 0 && block < options_.layers, InvalidArgument, "hyena: block ", block,
                 " of ", options_.layers, "; count from 0");
  const FilterPositions at = positions(length);
  const tensor::Scope outer("blocks." + std::to_string(block));
  const tensor::Scope operation("hyena");
  const tensor::Scope scope("filter");
  return (*blocks_)[static_cast<size_t>(block)].mixers.front().filter(at);
}

Hyena::Run Hyena::run(const at::Tensor& tokens) const {
  // What is no batch of sequences, the stack refuses.
  return {blocks_, positions(tokens.dim() == 2 ? tokens.size(1) : 0)};
}

at::Tensor Hyena::forward(const at::Tensor& tokens, Mode mode) const {
  return stack_->forward(tokens, mode, run(tokens));
}

at::Tensor Hyena::loss(const at::Tensor& tokens, const at::Tensor& targets, Mode mode) const {
  return stack_->loss(tokens, targets, mode, run(tokens));
}

}  // namespace mantissa::models
