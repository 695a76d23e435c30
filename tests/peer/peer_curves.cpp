// peer_curves INPUT OUTPUT: trains as tests/peer/peer_test.py does, on that script's weights and
// batches, and writes losses, loss scales and the last parameters. Both sides are one to one: what
// is changed here must be changed there.

#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/version.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/loss_scaler.h"
#include "mantissa/tensor/safetensors.h"

namespace mantissa {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

constexpr int64_t kWidth = 32;
constexpr int kBf16Steps = 40;
constexpr int kFp16Steps = 200;

at::Tensor norm(const Tensors& p, const std::string& name, const at::Tensor& x) {
  return at::layer_norm(x, {kWidth}, p.at(name + ".weight"), p.at(name + ".bias"));
}

// A transformer of one layer, one head.
at::Tensor loss_of(const Tensors& p, const at::Tensor& tokens, const at::Tensor& targets) {
  at::Tensor x = at::embedding(p.at("embedding"), tokens);
  const auto parts = at::linear(norm(p, "norm1", x), p.at("qkv")).chunk(3, -1);
  const at::Tensor scores = at::matmul(parts[0], parts[1].transpose(-2, -1)).mul(0.25);
  x = x.add(at::linear(at::matmul(at::softmax(scores, -1), parts[2]), p.at("out")));
  const at::Tensor hidden = at::linear(norm(p, "norm2", x), p.at("up"), p.at("up_bias"));
  x = x.add(at::linear(at::gelu(hidden), p.at("down"), p.at("down_bias")));
  const at::Tensor logits = at::linear(norm(p, "norm3", x), p.at("head"));
  return at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
}

// torch.optim.AdamW(foreach=False) with its defaults, operation by operation.
class TorchAdamw {
 public:
  explicit TorchAdamw(const Tensors& parameters) : parameters_(parameters) {
    for (const auto& [name, parameter] : parameters) {
      first_[name] = at::zeros_like(parameter);
      second_[name] = at::zeros_like(parameter);
    }
  }

  void step() {
    constexpr double kLr = 1e-2;
    constexpr double kDecay = 1e-2;
    constexpr double kBeta1 = 0.9;
    constexpr double kBeta2 = 0.999;
    constexpr double kEps = 1e-8;
    const at::NoGradGuard no_grad;
    ++steps_;
    const double root = std::sqrt(1 - std::pow(kBeta2, steps_));
    const double size = kLr / (1 - std::pow(kBeta1, steps_));
    for (auto& [name, parameter] : parameters_) {
      const at::Tensor& gradient = parameter.grad();
      parameter.mul_(1 - kLr * kDecay);
      first_[name].lerp_(gradient, 1 - kBeta1);
      second_[name].mul_(kBeta2).addcmul_(gradient, gradient, 1 - kBeta2);
      parameter.addcdiv_(first_[name], second_[name].sqrt().div(root).add_(kEps), -size);
    }
  }

 private:
  Tensors parameters_;  // shared with the model
  Tensors first_;
  Tensors second_;
  int steps_ = 0;
};

std::vector<at::Tensor> gradients_of(const Tensors& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : parameters) {
    gradients.push_back(parameter.grad());
  }
  return gradients;
}

Tensors parameters_of(const Tensors& input) {
  const std::string prefix = "parameter.";
  Tensors parameters;
  for (const auto& [name, tensor] : input) {
    if (name.starts_with(prefix)) {
      parameters[name.substr(prefix.size())] = tensor.clone().requires_grad_();
    }
  }
  return parameters;
}

void zero_grad(Tensors& parameters) {
  for (auto& [name, parameter] : parameters) {
    parameter.mutable_grad().reset();
  }
}

// Adds what a curve has to the output, under `name`.
void put(Tensors& output, const std::string& name, const Tensors& parameters,
         const std::vector<at::Tensor>& losses) {
  output[name + ".losses"] = at::stack(losses);
  for (const auto& [key, parameter] : parameters) {
    output[name + ".parameter." + key] = parameter.detach();
  }
}

void train_bf16(const Tensors& input, Tensors& output) {
  Tensors parameters = parameters_of(input);
  TorchAdamw optimizer(parameters);
  std::vector<at::Tensor> losses;
  const amp::Policy policy = amp::find_policy("torch-cpu compute=bf16");
  for (int step = 0; step < kBf16Steps; ++step) {
    at::Tensor loss;
    {
      const amp::Autocast region(policy);
      loss = loss_of(parameters, input.at("tokens")[step], input.at("targets")[step]);
    }
    loss.backward();
    optimizer.step();
    zero_grad(parameters);
    losses.push_back(loss.detach());
  }
  put(output, "bf16", parameters, losses);
}

void train_fp16(const Tensors& input, Tensors& output) {
  Tensors parameters = parameters_of(input);
  TorchAdamw optimizer(parameters);
  amp::LossScalerOptions options = amp::scale_preset("torch");
  options.growth_interval = 5;
  amp::LossScaler scaler(at::kCPU, options);
  std::vector<at::Tensor> losses;
  std::vector<at::Tensor> scales;
  const amp::Policy policy = amp::find_policy("torch-cpu compute=fp16");
  for (int step = 0; step < kFp16Steps; ++step) {
    at::Tensor loss;
    {
      const amp::Autocast region(policy);
      loss = loss_of(parameters, input.at("tokens")[step], input.at("targets")[step]);
    }
    scaler.scale(loss).backward();
    const at::Tensor found_inf = scaler.unscale_(gradients_of(parameters));
    if (found_inf.item<float>() == 0) {
      optimizer.step();
    }
    scaler.update(found_inf);
    zero_grad(parameters);
    losses.push_back(loss.detach());
    scales.push_back(scaler.value().clone());
  }
  put(output, "fp16", parameters, losses);
  output["fp16.scales"] = at::stack(scales);
}

}  // namespace
}  // namespace mantissa

int main(int argc, char** argv) {
  using namespace mantissa;
  if (argc != 3) {
    std::fputs("usage: peer_curves INPUT OUTPUT\n", stderr);
    return 2;
  }
  try {
    at::set_num_threads(1);
    const Tensors input = tensor::read_safetensors(argv[1]).tensors;
    Tensors output;
    train_bf16(input, output);
    train_fp16(input, output);
    tensor::write_safetensors(argv[2], output, {{"torch", TORCH_VERSION}});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
