// A LibTorch training loop in FP16 on FP32 weights: a region, a loss scaler, an optimizer.
#include <cstdio>

#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/loss_scaler.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/optim/clip.h"
#include "mantissa/optim/optimizer.h"

int main() {
  mantissa::ops::install_cpu_kernels();  // fast 16-bit products, also on this CPU
  const at::Tensor w1 = at::randn({64, 16}).mul(0.25).requires_grad_();
  const at::Tensor w2 = at::randn({1, 64}).mul(0.125).requires_grad_();
  mantissa::optim::Optimizer optimizer({{"w1", w1}, {"w2", w2}});  // weights in FP32
  mantissa::amp::LossScaler scaler(at::kCPU);                      // keeps small FP16 gradients
  const auto policy = mantissa::amp::find_policy("torch-fixed compute=fp16");
  for (int step = 0; step < 200; ++step) {
    const at::Tensor x = at::randn({256, 16});
    at::Tensor loss;
    {
      const mantissa::amp::Autocast region(policy);  // products in FP16 from here ...
      loss = at::mse_loss(at::linear(at::relu(at::linear(x, w1)), w2), x.sum(1, true));
    }  // ... to here; backward runs in the formats of the forward pass
    scaler.scale(loss).backward();
    const auto gradients = optimizer.read_gradients(scaler.value());  // unscaled norm, found_inf
    optimizer.step({.lr = 1e-2,
                    .scale = scaler.value(),
                    .clip_factor = mantissa::optim::clip_factor(gradients.norm, 1.0),
                    .found_inf = gradients.found_inf});
    scaler.update(gradients.found_inf);
    optimizer.zero_grad();
    if (step % 50 == 49) std::printf("step %d loss %.4f\n", step + 1, loss.item<float>());
  }
}
