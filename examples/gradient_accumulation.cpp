// Microbatches: 16-bit parameters whose gradients add up in FP32, clipped once, after unscaling.
#include <cstdio>

#include <ATen/Context.h>
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
  mantissa::ops::install_cpu_kernels();
  at::manual_seed(1);
  constexpr int kMicrobatches = 4;
  const at::Tensor w1 = at::randn({64, 16}).mul(0.25).to(at::kHalf).requires_grad_();
  const at::Tensor w2 = at::randn({1, 64}).mul(0.125).to(at::kHalf).requires_grad_();
  mantissa::optim::Optimizer optimizer({{"w1", w1}, {"w2", w2}});  // with FP32 masters
  mantissa::amp::LossScaler scaler(at::kCPU);
  const auto policy = mantissa::amp::find_policy("torch-fixed compute=fp16");
  for (int step = 0; step < 200; ++step) {
    double mean_loss = 0;
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      const at::Tensor x = at::randn({64, 16});
      at::Tensor loss;
      {
        const mantissa::amp::Autocast region(policy);
        loss = at::mse_loss(at::linear(at::relu(at::linear(x, w1)), w2), x.sum(1, true));
      }
      scaler.scale(loss.div(kMicrobatches)).backward();
      optimizer.accumulate_();  // FP16 gradients into FP32 sums, still scaled
      mean_loss += loss.item<double>() / kMicrobatches;
    }
    // Once for all microbatches: the norm is that of the unscaled gradients.
    const auto gradients = optimizer.read_gradients(scaler.value());
    optimizer.step({.lr = 1e-2,
                    .scale = scaler.value(),
                    .clip_factor = mantissa::optim::clip_factor(gradients.norm, 1.0),
                    .found_inf = gradients.found_inf});
    scaler.update(gradients.found_inf);
    optimizer.zero_grad();
    if (step % 50 == 49) std::printf("step %d loss %.4f\n", step + 1, mean_loss);
  }
}
