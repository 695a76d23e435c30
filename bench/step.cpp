// A whole training step: against what its FP32 products would take alone, against our FP32 step,
// LibTorch and Python's torch.
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>

#include "bench/python_step.h"
#include "bench/row.h"
#include "bench/training_step.h"
#include "mantissa/base/error.h"
#include "mantissa/ops/install_cpu_kernels.h"

namespace mantissa::bench {
namespace {

using numerics::Format;

constexpr double kFlops = step_linear_flops() + step_attention_flops();

// Sums of another order change a loss in FP32 by some 2^-23, and gradients that are all rounding,
// which AdamW makes full steps of, by more. BF16 rounds every activation by up to 2^-9; the mean
// over the tokens keeps less of it.
constexpr int kCheckedSteps = 3;
constexpr double kSameInFp32 = 1e-5;
constexpr double kSameInBf16 = 2e-3;

Contest contest(const Step& ours, const Step& peer) {
  return {.ours = [=] { ours(); }, .peer = [=] { peer(); }};
}

// Of our FP32 step against another one.
Contest fp32_contest(const Step& peer) {
  const Step ours = our_step(Format::fp32);
  require_same_losses(ours, peer, kCheckedSteps, kSameInFp32);
  return contest(ours, peer);
}

// Of our BF16 step against an FP32 one, which must agree with our FP32 step closely.
Contest bf16_contest(const Step& peer) {
  const Step ours = our_step(Format::bf16);
  require_same_losses(ours, our_step(Format::fp32), kCheckedSteps, kSameInBf16);
  return {.ours = [=] { ours(); }, .peer = fp32_contest(peer).peer};
}

// Of our BF16 step against one under autocast, which may take minutes: one step must do.
Contest autocast_contest(const Step& peer) {
  const Step ours = our_step(Format::bf16);
  require_same_losses(ours, peer, 1, kSameInBf16);
  return contest(ours, peer);
}

// One FP32 product of each that forward and backward have, without the step around them.
Action linear_products() {
  struct Shape {
    at::Tensor x, w, g;
    int64_t count;
  };
  std::vector<Shape> shapes;
  for (const LinearShape& s : step_linears()) {
    shapes.push_back({at::randn({kStepTokens, s.in}), at::randn({s.out, s.in}),
                      at::randn({kStepTokens, s.out}), s.count});
  }
  return [shapes = std::move(shapes)] {
    const at::NoGradGuard no_grad;
    const ops::CpuKernelsGuard stock(ops::CpuKernels::stock);
    for (const Shape& s : shapes) {
      for (int64_t i = 0; i < s.count; ++i) {
        at::mm(s.x, s.w.t());
        at::mm(s.g, s.w);
        at::mm(s.g.t(), s.x);
      }
    }
  };
}

Contest against_products() {
  return {.ours = [ours = our_step(Format::bf16)] { ours(); },
          .peer = linear_products(),
          .peer_factor = kFlops / step_linear_flops()};
}

PythonInput python_input() {
  PythonInput input{.tensors = {},
                    .settings = {{"layers", std::to_string(kStepLayers)},
                                 {"heads", std::to_string(kStepHeads)},
                                 {"context", std::to_string(kStepContext)},
                                 {"rope_base", concat(kStepRopeBase)},
                                 {"lr", concat(kStepLr)},
                                 {"beta1", concat(kStepBeta1)},
                                 {"beta2", concat(kStepBeta2)},
                                 {"eps", concat(kStepEps)},
                                 {"weight_decay", concat(kStepWeightDecay)},
                                 {"clip", concat(kStepClip)}}};
  for (const tensor::Parameter& parameter : step_parameters()) {
    input.tensors[parameter.name] = parameter.value.detach();
  }
  std::vector<at::Tensor> tokens;
  std::vector<at::Tensor> targets;
  for (const data::Batch& batch : step_batches()) {
    tokens.push_back(batch.tokens);
    targets.push_back(batch.targets);
  }
  input.tensors["tokens"] = at::stack(tokens);
  input.tensors["targets"] = at::stack(targets);
  return input;
}

Contest against_python(const std::string& python, const std::string& variant) {
  const Step peer = python_step(python, "training_step.py", python_input(), variant);
  Contest result = variant == "autocast" ? autocast_contest(peer) : bf16_contest(peer);
  result.pause_s = 0.05;
  return result;
}

Figure python_figure(const Setup& setup, const std::string& name, const std::string& meaning,
                     const std::vector<std::string>& variants, const Bars& bars) {
  Figure figure{.name = "step/python-" + name,
                .meaning = "our BF16 step against Python's torch: " + meaning,
                .rows = {{"", Summary::worst, bars}},
                .share = static_cast<double>(variants.size())};
  if (setup.peer_python.empty()) {
    figure.unavailable = "asked for by --peer";
    return figure;
  }
  for (const std::string& variant : variants) {
    const auto make = [=, python = setup.peer_python] { return against_python(python, variant); };
    figure.cases.push_back(timed(variant, make, kFlops, "FLOP"));
  }
  return figure;
}

Figure step_figure(const std::string& name, const std::string& meaning,
                   const std::function<Contest()>& make, const Bars& bars) {
  return {.name = "step/" + name,
          .meaning = meaning,
          .cases = {timed(name, make, kFlops, "FLOP")},
          .rows = {{"", Summary::worst, bars}}};
}

std::vector<Figure> figures(const Setup& setup) {
  const Bars of_products = {{0.7, 0.9}, {0.7, 0.9}};
  const Bars of_fp32 = {{0.97, 1.05}, {1.5, 1.8}};
  const Bars of_autocast = {{20, 28}, {1.4, 1.8}};
  const Bars of_python = {{1.25, 1.6}, {1.8, 2.5}};
  return {
      step_figure("products",
                  "our BF16 step against its linear and attention FLOPs at the speed of FP32 mm on "
                  "its own shapes",
                  against_products, of_products),
      step_figure(
          "our-fp32", "our BF16 step against our FP32 step",
          [] { return bf16_contest(our_step(Format::fp32)); }, of_fp32),
      step_figure("libtorch-fp32", "our BF16 step against plain LibTorch in FP32 with fused AdamW",
                  [] { return bf16_contest(libtorch_step(Format::fp32)); }, {}),
      step_figure(
          "libtorch-autocast", "our BF16 step against plain LibTorch in BF16 under at::autocast",
          [] { return autocast_contest(libtorch_step(Format::bf16)); }, of_autocast),
      step_figure("fp32/libtorch-fp32",
                  "our FP32 step against plain LibTorch in FP32 with fused AdamW",
                  [] { return fp32_contest(libtorch_step(Format::fp32)); }, {}),
      step_figure(
          "statistics",
          "our BF16 step with the statistics of every parameter's gradient against the same "
          "without",
          [] {
            return contest(our_step(Format::bf16, {.gradient_statistics = true}),
                           our_step(Format::bf16));
          },
          {{0.98, 0.99}, {0.98, 0.99}}),
      python_figure(setup, "fp32", "the best of eager, fused AdamW, and torch.compile with it",
                    {"eager", "fused", "compile"}, of_python),
      python_figure(setup, "autocast", "BF16 autocast with fused AdamW", {"autocast"},
                    of_autocast)};
}

const Subject subject("step", figures);

}  // namespace
}  // namespace mantissa::bench
