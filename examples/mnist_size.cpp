// A plain LibTorch loop of MNIST's size, 784-128-10, in FP16. What differs from FP32 is numbered.
// The digits are synthetic and seeded: ten random pictures under noise.
#include <cstdio>

#include <ATen/Context.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/grad_scaler.h"
#include "mantissa/ops/install_cpu_kernels.h"

namespace amp = mantissa::amp;

struct Net : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return output(at::relu(hidden(x))); }

  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(784, 128));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(128, 10));
};

at::Tensor loss_of(Net& net, const at::Tensor& x, const at::Tensor& digits) {
  static const amp::Policy policy = amp::find_policy("torch-fixed compute=fp16");
  const amp::Autocast region(policy);  // 1: products in FP16, the loss in FP32
  return at::cross_entropy_loss(net.forward(x), digits);
}

int main() {
  mantissa::ops::install_cpu_kernels();
  at::manual_seed(1);
  const at::Tensor pictures = at::randn({10, 784});
  Net net;
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.01));
  amp::GradScaler scaler(at::kCPU);
  const auto noisy = [&](const at::Tensor& digits) {
    return pictures.index_select(0, digits) + at::randn({digits.size(0), 784}).mul(6);
  };
  for (int step = 0; step < 200; ++step) {
    const at::Tensor digits = at::randint(10, {64}, at::kLong);
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(net, noisy(digits), digits);
    scaler.scale(loss).backward();  // 2: was loss.backward()
    scaler.step(optimizer);         // 3: was optimizer.step()
    scaler.update();
    if (step % 50 == 49) std::printf("step %d loss %.4f\n", step + 1, loss.item<float>());
  }
  const at::Tensor digits = at::randint(10, {1000}, at::kLong);
  const at::Tensor right = net.forward(noisy(digits)).argmax(1).eq(digits);
  std::printf("%.1f %% of 1000 new digits recognized\n", right.sum().item<double>() / 10);
}
