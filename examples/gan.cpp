// Two optimizers and one loss scaler: a GAN in FP16 whose generator learns a normal distribution.
#include <cstdio>

#include <ATen/Context.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/loss_scaler.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/optim/optimizer.h"

using mantissa::amp::Autocast;
using mantissa::optim::Optimizer;

int main() {
  mantissa::ops::install_cpu_kernels();
  at::manual_seed(1);
  constexpr int64_t kBatch = 128;
  // The generator is a line in x, the discriminator one in x and its square.
  const at::Tensor slope = at::ones({1, 1}).requires_grad_();
  const at::Tensor shift = at::zeros({1}).requires_grad_();
  const at::Tensor w = at::zeros({1, 2}).requires_grad_();
  const at::Tensor b = at::zeros({1}).requires_grad_();
  const auto discriminate = [&](const at::Tensor& x) {
    return at::linear(at::cat({x, x.square()}, 1), w, b);
  };
  Optimizer generator({{"slope", slope}, {"shift", shift}}, {.beta1 = 0.5, .weight_decay = 0});
  Optimizer discriminator({{"w", w}, {"b", b}}, {.beta1 = 0.5, .weight_decay = 0});
  mantissa::amp::LossScaler scaler(at::kCPU);
  const auto policy = mantissa::amp::find_policy("torch-fixed compute=fp16");
  const auto loss_of = [](const at::Tensor& logits, bool real) {
    const at::Tensor target = real ? at::ones_like(logits) : at::zeros_like(logits);
    return at::binary_cross_entropy_with_logits(logits, target);
  };
  for (int step = 0; step <= 800; ++step) {
    const at::Tensor real = at::randn({kBatch, 1}).mul(2).add(3);
    at::Tensor fake;
    at::Tensor loss;
    {
      const Autocast region(policy);
      fake = at::linear(at::randn({kBatch, 1}), slope, shift);
      loss = loss_of(discriminate(real), true).add(loss_of(discriminate(fake.detach()), false));
    }
    scaler.scale(loss).backward();
    const auto d = discriminator.read_gradients(scaler.value());
    discriminator.step({.lr = 5e-2, .scale = scaler.value(), .found_inf = d.found_inf});
    {
      const Autocast region(policy);
      loss = loss_of(discriminate(fake), true);
    }
    scaler.scale(loss).backward();
    const auto g = generator.read_gradients(scaler.value());
    generator.step({.lr = 1e-2, .scale = scaler.value(), .found_inf = g.found_inf});
    scaler.update({d.found_inf, g.found_inf});  // once, after both; each is skipped on its own
    generator.zero_grad();
    discriminator.zero_grad();  // also of what the generator's loss left there
    if (step % 400 == 0) {
      std::printf("step %d mean %.2f deviation %.2f, of the data 3 and 2\n", step,
                  shift.item<float>(), slope.abs().item<float>());
    }
  }
}
