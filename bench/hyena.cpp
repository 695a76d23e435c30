// A training step of a network like HyenaDNA (Nguyen et al., 2023) of two blocks, on one long
// sequence: ours in BF16 against plain LibTorch and Python's torch in FP32.
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/fft_irfft.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "bench/python_step.h"
#include "bench/row.h"
#include "bench/same_losses.h"
#include "mantissa/amp/autocast.h"
#include "mantissa/base/error.h"
#include "mantissa/numerics/format.h"
#include "mantissa/ops/activation.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/linear_cross_entropy.h"
#include "mantissa/ops/long_convolution.h"
#include "mantissa/ops/norm.h"

// A sequence of L tokens, D numbers a token.
namespace mantissa::bench {
namespace {

using at::Tensor;
using numerics::Format;

constexpr int64_t kLayers = 2;
constexpr int64_t kVocabulary = 16;
constexpr int64_t kFilterWidth = 64;
constexpr double kSine = 10;  // the frequency of the filters' network
constexpr double kEps = 1e-5;
constexpr double kLr = 1e-4;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kWeightDecay = 0.1;
constexpr double kAdamEps = 1e-8;

struct Shape {
  int64_t width;
  int64_t context;
};

struct Batch {
  Tensor tokens;
  Tensor targets;
};

// Weights, filters, batches and the update, which both sides share.
class Hyena {
 public:
  explicit Hyena(const Shape& shape) : shape_(shape) {
    at::manual_seed(23);
    const int64_t d = shape.width;
    weight("embedding", {kVocabulary, d});
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      block_ = concat(layer, '.');
      for (const char* norm : {"mixer_norm", "mlp_norm"}) {
        add(block_ + norm + ".weight", at::ones({d}));
        add(block_ + norm + ".bias", at::zeros({d}));
      }
      weight(block_ + "in", {3 * d, d});
      add(block_ + "short", at::randn({3 * d, 1, 3}).mul(0.5));
      add(block_ + "short_bias", at::zeros({3 * d}));
      weight(block_ + "filter.0", {kFilterWidth, 5});
      weight(block_ + "filter.1", {kFilterWidth, kFilterWidth});
      weight(block_ + "filter.2", {d, kFilterWidth});
      add(block_ + "bias", at::randn({d}));
      weight(block_ + "out", {d, d});
      weight(block_ + "up", {4 * d, d});
      weight(block_ + "down", {d, 4 * d});
    }
    add("norm.weight", at::ones({d}));
    add("norm.bias", at::zeros({d}));
    const Tensor t = at::linspace(0, 1, shape.context).unsqueeze(1);
    const Tensor angle = t.mul(2 * M_PI);
    positions_ = at::cat(
        {t, angle.mul(1e-4).cos(), angle.cos(), angle.mul(1e-4).sin().neg(), angle.sin().neg()}, 1);
    const double slow = std::log(1e-2);
    decay_ = at::exp(t.mul(at::linspace(slow / 1.5, slow / 0.3, d)));
    for (int i = 0; i < 2; ++i) {
      batches_.push_back({at::randint(7, 11, {1, shape.context}, at::kLong),
                          at::randint(7, 11, {1, shape.context}, at::kLong)});
    }
  }

  virtual ~Hyena() = default;
  Hyena(const Hyena&) = delete;
  Hyena& operator=(const Hyena&) = delete;

  /// For bench/peer/hyena_step.py, before the first step.
  PythonInput python_input() const {
    PythonInput input{.tensors = {{"positions", positions_}, {"decay", decay_}},
                      .settings = {{"layers", std::to_string(kLayers)},
                                   {"sine", concat(kSine)},
                                   {"norm_eps", concat(kEps)},
                                   {"lr", concat(kLr)},
                                   {"beta1", concat(kBeta1)},
                                   {"beta2", concat(kBeta2)},
                                   {"eps", concat(kAdamEps)},
                                   {"weight_decay", concat(kWeightDecay)}}};
    for (const auto& [name, value] : parameters_) {
      input.tensors[name] = value.detach();
    }
    input.tensors["tokens"] = at::stack({batches_[0].tokens, batches_[1].tokens});
    input.tensors["targets"] = at::stack({batches_[0].targets, batches_[1].targets});
    return input;
  }

  double run() {
    const Tensor loss = loss_of(batches_[step_++ % batches_.size()]);
    loss.backward();
    update();
    return loss.item<double>();
  }

 protected:
  virtual Tensor loss_of(const Batch& batch) const = 0;

  const Tensor& parameter(const std::string& name) const { return parameters_.at(name); }

  // (D, L): a small network of the position, under an exponential window. FP32 on both sides.
  Tensor filter(const std::string& block) const {
    Tensor x = positions_;
    for (const char* layer : {"filter.0", "filter.1"}) {
      x = at::sin(at::linear(x, parameter(block + layer)).mul(kSine));
    }
    return at::linear(x, parameter(block + "filter.2")).mul(decay_).t();
  }

  const Shape shape_;

 private:
  void add(const std::string& name, const Tensor& value) {
    parameters_[name] = value.requires_grad_();
    list_.push_back(value);
    first_.push_back(at::zeros_like(value));
    second_.push_back(at::zeros_like(value));
    steps_.push_back(at::zeros({}));
  }
  void weight(const std::string& name, at::IntArrayRef shape) {
    add(name, at::randn(shape).mul(0.02));
  }

  void update() {
    const at::NoGradGuard no_grad;
    std::vector<Tensor> gradients;
    for (Tensor& parameter : list_) {
      gradients.push_back(parameter.grad());
      parameter.mutable_grad().reset();
    }
    for (Tensor& step : steps_) {
      step.add_(1);
    }
    at::_fused_adamw_(list_, gradients, first_, second_, {}, steps_, kLr, kBeta1, kBeta2,
                      kWeightDecay, kAdamEps, /*amsgrad=*/false, /*maximize=*/false);
  }

  std::string block_;
  std::map<std::string, Tensor> parameters_;
  std::vector<Tensor> list_, first_, second_, steps_;
  Tensor positions_, decay_;
  std::vector<Batch> batches_;
  size_t step_ = 0;
};

class OurHyena : public Hyena {
 public:
  OurHyena(const Shape& shape, Format compute)
      : Hyena(shape),
        policy_(amp::find_policy(concat("lean compute=", numerics::to_string(compute)))) {}

 private:
  Tensor mix(const std::string& block, const Tensor& x) const {
    Tensor taps;
    {
      const auto fp32 = amp::Autocast::disabled();
      taps = filter(block);
    }
    const Tensor u = at::linear(x, parameter(block + "in")).transpose(1, 2);
    const auto parts = at::conv1d(u, parameter(block + "short"), parameter(block + "short_bias"), 1,
                                  2, 1, 3 * shape_.width)
                           .slice(2, 0, shape_.context)
                           .chunk(3, 1);
    const Tensor y = ops::long_convolution(parts[2].mul(parts[1]), taps, parameter(block + "bias"));
    return at::linear(y.mul(parts[0]).transpose(1, 2), parameter(block + "out"));
  }

  Tensor loss_of(const Batch& batch) const override {
    const amp::Autocast region(policy_);
    Tensor x = at::embedding(parameter("embedding"), batch.tokens);
    Tensor branch;
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const std::string block = concat(layer, '.');
      const auto add_norm = [&](const std::string& name) {
        const Tensor& weight = parameter(name + ".weight");
        const Tensor& bias = parameter(name + ".bias");
        if (!branch.defined()) {
          return ops::layer_norm(x, weight, bias, kEps);
        }
        Tensor normalized;
        std::tie(x, normalized) = ops::add_layer_norm(branch, x, weight, bias, kEps);
        return normalized;
      };
      branch = mix(block, add_norm(block + "mixer_norm"));
      branch = ops::gelu_linear(at::linear(add_norm(block + "mlp_norm"), parameter(block + "up")),
                                parameter(block + "down"));
    }
    const Tensor last =
        ops::add_layer_norm(branch, x, parameter("norm.weight"), parameter("norm.bias"), kEps)
            .second;
    return ops::linear_cross_entropy(last.flatten(0, 1), parameter("embedding"), {},
                                     batch.targets.flatten());
  }

  const amp::Policy policy_;
};

class LibtorchHyena : public Hyena {
 public:
  using Hyena::Hyena;

 private:
  Tensor norm(const std::string& name, const Tensor& x) const {
    return at::layer_norm(x, {shape_.width}, parameter(name + ".weight"), parameter(name + ".bias"),
                          kEps);
  }

  Tensor convolve(const Tensor& x, const Tensor& taps, const Tensor& bias) const {
    const int64_t size = 2 * shape_.context;
    const Tensor spectrum = at::fft_rfft(x, size).mul(at::fft_rfft(taps, size).div(size));
    const Tensor y = at::fft_irfft(spectrum, size, -1, "forward").slice(-1, 0, shape_.context);
    return y.add(x.mul(bias.unsqueeze(-1)));
  }

  Tensor mix(const std::string& block, const Tensor& x) const {
    const Tensor u = at::linear(x, parameter(block + "in")).transpose(1, 2);
    const auto parts = at::conv1d(u, parameter(block + "short"), parameter(block + "short_bias"), 1,
                                  2, 1, 3 * shape_.width)
                           .slice(2, 0, shape_.context)
                           .chunk(3, 1);
    const Tensor y = convolve(parts[2].mul(parts[1]), filter(block), parameter(block + "bias"));
    return at::linear(y.mul(parts[0]).transpose(1, 2), parameter(block + "out"));
  }

  Tensor loss_of(const Batch& batch) const override {
    Tensor x = at::embedding(parameter("embedding"), batch.tokens);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const std::string block = concat(layer, '.');
      x = x.add(mix(block, norm(block + "mixer_norm", x)));
      const Tensor hidden = at::linear(norm(block + "mlp_norm", x), parameter(block + "up"));
      x = x.add(at::linear(at::gelu(hidden, "tanh"), parameter(block + "down")));
    }
    const Tensor logits = at::linear(norm("norm", x), parameter("embedding"));
    return at::cross_entropy_loss(logits.flatten(0, 1), batch.targets.flatten());
  }
};

Step our_step_of(const Shape& shape, Format compute) {
  return [model = std::make_shared<OurHyena>(shape, compute)] { return model->run(); };
}

Step libtorch_step_of(const Shape& shape) {
  return [model = std::make_shared<LibtorchHyena>(shape)] {
    const ops::CpuKernelsGuard stock(ops::CpuKernels::stock);
    return model->run();
  };
}

// Tolerances as in step.cpp.
Contest contest(const Shape& shape, Format compute, const Step& peer) {
  const Step ours = our_step_of(shape, compute);
  require_same_losses(ours, peer, 3, compute == Format::fp32 ? 1e-5 : 2e-3);
  return {.ours = [=] { ours(); }, .peer = [=] { peer(); }};
}

Contest against_python(const Shape& shape, Format compute, const std::string& python,
                       const std::string& variant) {
  const Step peer =
      python_step(python, "hyena_step.py", LibtorchHyena(shape).python_input(), variant);
  Contest result = contest(shape, compute, peer);
  result.pause_s = 0.05;
  return result;
}

std::string size_of(const Shape& shape) { return concat(shape.width, '-', shape.context); }

std::string meaning(const Shape& shape, Format compute, const std::string& peer) {
  return concat("our ", numerics::to_string(compute), " step of a Hyena of two blocks, width ",
                shape.width, ", context ", shape.context, ", against ", peer);
}

Figure against_libtorch(const Shape& shape, Format compute, const Bars& bars) {
  const auto make = [=] { return contest(shape, compute, libtorch_step_of(shape)); };
  return {.name = concat("step/hyena/", numerics::to_string(compute), '-', size_of(shape)),
          .meaning = meaning(shape, compute, "plain LibTorch in FP32"),
          .cases = {timed(size_of(shape), make)},
          .rows = {{"", Summary::worst, bars}}};
}

Figure against_python(const Setup& setup, const Shape& shape, const Bars& bars) {
  const std::vector<std::string> variants = {"eager", "fused", "compile"};
  Figure figure{.name = concat("step/hyena/python-bf16-", size_of(shape)),
                .meaning = meaning(shape, Format::bf16,
                                   "the best of Python's torch in FP32: eager, fused AdamW, and "
                                   "torch.compile with it"),
                .rows = {{"", Summary::worst, bars}},
                .share = static_cast<double>(variants.size())};
  if (setup.peer_python.empty()) {
    figure.unavailable = "asked for by --peer";
    return figure;
  }
  for (const std::string& variant : variants) {
    const auto make = [=, python = setup.peer_python] {
      return against_python(shape, Format::bf16, python, variant);
    };
    figure.cases.push_back(timed(variant, make));
  }
  return figure;
}

std::vector<Figure> figures(const Setup& setup) {
  const Bars bars = {{1.5, 2.5}, {1.5, 2.5}};
  std::vector<Figure> result;
  for (const Shape& shape : {Shape{128, 16384}, Shape{128, 65536}, Shape{256, 16384}}) {
    result.push_back(against_libtorch(shape, Format::bf16, bars));
    result.push_back(against_python(setup, shape, bars));
  }
  result.push_back(against_libtorch({128, 16384}, Format::fp32, {}));
  return result;
}

const Subject subject("step-hyena", figures);

}  // namespace
}  // namespace mantissa::bench
