// A loop as torch.amp has it in Python, with its names, on an optimizer of torch::optim.
#include <cstdio>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/grad_scaler.h"
#include "mantissa/ops/install_cpu_kernels.h"

int main() {
  mantissa::ops::install_cpu_kernels();
  at::manual_seed(1);
  const std::vector<at::Tensor> weights = {at::randn({64, 16}).mul(0.25).requires_grad_(),
                                           at::randn({1, 64}).mul(0.125).requires_grad_()};
  torch::optim::AdamW optimizer(weights, torch::optim::AdamWOptions(1e-2));
  // Too large at first, to show skipped steps.
  mantissa::amp::GradScaler scaler(at::kCPU, {.init_scale = 0x1p24F});
  const auto policy = mantissa::amp::find_policy("torch compute=fp16");
  int applied = 0;
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    const at::Tensor x = at::randn({256, 16});
    at::Tensor loss;
    {
      const mantissa::amp::Autocast region(policy);  // with torch.autocast("cuda", torch.float16):
      loss =
          at::mse_loss(at::linear(at::relu(at::linear(x, weights[0])), weights[1]), x.sum(1, true));
    }
    scaler.scale(loss).backward();
    scaler.unscale_(optimizer);
    torch::nn::utils::clip_grad_norm_(weights, 1.0);
    // torch does not tell whether it stepped; a schedule should move only if so.
    applied += scaler.step(optimizer) == mantissa::StepOutcome::applied ? 1 : 0;
    scaler.update();
    if (step % 50 == 49) std::printf("step %d loss %.4f\n", step + 1, loss.item<float>());
  }
  std::printf("%d applied, %d skipped, scale %g\n", applied, 200 - applied, scaler.get_scale());
}
