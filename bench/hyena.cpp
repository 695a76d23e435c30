// A training step of a HyenaDNA (Nguyen et al., 2023) of two blocks, on one long sequence: ours in
// BF16 against plain LibTorch and Python's torch in FP32.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "bench/python_step.h"
#include "bench/row.h"
#include "bench/same_losses.h"
#include "mantissa/amp/autocast.h"
#include "mantissa/base/error.h"
#include "mantissa/models/hyena.h"
#include "mantissa/numerics/format.h"
#include "mantissa/ops/install_cpu_kernels.h"

namespace mantissa::bench {
namespace {

using at::Tensor;
using numerics::Format;

constexpr double kEps = 1e-5;  // of the norms
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

models::HyenaOptions options_of(const Shape& shape, bool fused) {
  return {.width = shape.width, .filter = {.positions = shape.context}, .fused = fused};
}

// A model with its batches and its update; two of one shape begin alike.
class Hyena {
 public:
  // With our operations under `policy`, or by LibTorch alone.
  Hyena(const Shape& shape, std::optional<amp::Policy> policy)
      : model_(options_of(shape, policy.has_value()), 23), policy_(std::move(policy)) {
    at::manual_seed(23);
    for (const tensor::Parameter& parameter : model_.parameters()) {
      list_.push_back(parameter.value);
      first_.push_back(at::zeros_like(parameter.value));
      second_.push_back(at::zeros_like(parameter.value));
      steps_.push_back(at::zeros({}));
    }
    for (int i = 0; i < 2; ++i) {
      batches_.push_back({at::randint(7, 11, {1, shape.context}, at::kLong),
                          at::randint(7, 11, {1, shape.context}, at::kLong)});
    }
  }

  /// For bench/peer/hyena_step.py, before the first step.
  PythonInput python_input() const {
    const models::ImplicitFilterOptions& filter = model_.options().filter;
    PythonInput input{.tensors = {},
                      .settings = {{"layers", std::to_string(model_.options().layers)},
                                   {"bands", std::to_string(filter.bands)},
                                   {"slow_decay", concat(filter.slow_decay)},
                                   {"fast_decay", concat(filter.fast_decay)},
                                   {"decay_target", concat(filter.decay_target)},
                                   {"norm_eps", concat(kEps)},
                                   {"lr", concat(kLr)},
                                   {"beta1", concat(kBeta1)},
                                   {"beta2", concat(kBeta2)},
                                   {"eps", concat(kAdamEps)},
                                   {"weight_decay", concat(kWeightDecay)}}};
    for (const tensor::Parameter& parameter : model_.parameters()) {
      input.tensors[parameter.name] = parameter.value.detach();
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

 private:
  Tensor loss_of(const Batch& batch) const {
    if (!policy_) {
      return model_.loss(batch.tokens, batch.targets);
    }
    const amp::Autocast region(*policy_);
    return model_.loss(batch.tokens, batch.targets);
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

  const models::Hyena model_;
  const std::optional<amp::Policy> policy_;
  std::vector<Tensor> list_, first_, second_, steps_;
  std::vector<Batch> batches_;
  size_t step_ = 0;
};

// With the filters' networks in FP32.
amp::Policy policy_of(Format compute) {
  const std::string text = concat("lean compute=", numerics::to_string(compute));
  return amp::find_policy(
      compute == Format::fp32 ? text : text + " scope:positions=fp32 scope:*.filter=fp32");
}

Step our_step_of(const Shape& shape, Format compute) {
  return [model = std::make_shared<Hyena>(shape, policy_of(compute))] { return model->run(); };
}

Step libtorch_step_of(const Shape& shape) {
  return [model = std::make_shared<Hyena>(shape, std::nullopt)] {
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
      python_step(python, "hyena_step.py", Hyena(shape, std::nullopt).python_input(), variant);
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
