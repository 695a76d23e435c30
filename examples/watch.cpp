// Where did the NaN come from, and how near is the rest to overflow? A plain LibTorch loop,
// watched: what is new in it are the three numbered lines. Its temperature falls until a
// probability is 0, whose logarithm is none.
#include <cstdio>

#include <ATen/Context.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "mantissa/monitor/watch.h"
#include "mantissa/tensor/scope.h"

struct Net : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = encode(x);
    const mantissa::tensor::Scope scope("head");  // names what runs; without it there is one scope
    return output(h);
  }

  at::Tensor encode(const at::Tensor& x) {
    const mantissa::tensor::Scope scope("encoder");
    return hidden(x).relu();
  }

  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(32, 64));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(64, 10));
};

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& classes, double temperature) {
  const mantissa::tensor::Scope scope("loss");
  const at::Tensor e = logits.div(temperature).exp();  // a softmax by hand, without its maximum
  const at::Tensor p = e.div(e.sum(1, true));
  return p.gather(1, classes.unsqueeze(1)).log().neg().mean();
}

int main() {
  at::manual_seed(1);
  Net net;
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.01));
  mantissa::tensor::ParameterList parameters;
  for (const auto& item : net.named_parameters()) parameters.push_back({item.key(), item.value()});
  mantissa::monitor::Watch watch({.parameters = parameters});  // 1
  for (int step = 1; step <= 120; ++step) {
    const auto look = watch.step();  // 2: looks at every 50th step
    optimizer.zero_grad();
    const at::Tensor x = at::randn({256, 32});
    const at::Tensor loss = loss_of(net.forward(x), at::randint(10, {256}, at::kLong), 1.0 / step);
    loss.backward();
    if (watch.check(loss)) {
      optimizer.step();
    } else if (watch.first_nonfinite()) {
      break;  // else the next step is looked at, with weights that are whole
    }
  }
  std::printf("%s", watch.report().c_str());  // 3
}
