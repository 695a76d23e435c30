// A whole training step: against what its FP32 products would take alone, against our FP32 step,
// LibTorch and Python's torch.
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>

#include "bench/peer_process.h"
#include "bench/row.h"
#include "bench/training_step.h"
#include "mantissa/base/error.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/safetensors.h"

namespace mantissa::bench {
namespace {

using numerics::Format;

constexpr double kFlops = step_linear_flops() + step_attention_flops();

// Sums of another order change an FP32 loss by 1e-6 or less; after an update, in which AdamW gives
// full steps also to gradients that are all rounding, by 1e-4. BF16 has half a unit of 2^-9 in
// every activation, of which a mean over 4,096 tokens leaves less.
constexpr double kSameInFp32 = 2e-4;
constexpr double kSameInBf16 = 4e-3;

Contest contest(const Step& ours, const Step& peer, double tolerance, int steps = 3) {
  require_same_losses(ours, peer, steps, tolerance);
  return {.ours = [=] { ours(); }, .peer = [=] { peer(); }};
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
  const Step ours = our_step(Format::bf16);
  return {.ours = [=] { ours(); },
          .peer = linear_products(),
          .peer_factor = kFlops / step_linear_flops()};
}

// Weights, batches and settings of the step as a file for the peer; gone with the object.
class PeerInput {
 public:
  PeerInput() {
    std::map<std::string, at::Tensor> tensors;
    for (const tensor::Parameter& parameter : step_parameters()) {
      tensors[parameter.name] = parameter.value.detach();
    }
    std::vector<at::Tensor> tokens;
    std::vector<at::Tensor> targets;
    for (const data::Batch& batch : step_batches()) {
      tokens.push_back(batch.tokens);
      targets.push_back(batch.targets);
    }
    tensors["tokens"] = at::stack(tokens);
    tensors["targets"] = at::stack(targets);
    std::filesystem::remove(path_);
    tensor::write_safetensors(path_, tensors,
                              {{"layers", std::to_string(kStepLayers)},
                               {"heads", std::to_string(kStepHeads)},
                               {"context", std::to_string(kStepContext)},
                               {"rope_base", concat(kStepRopeBase)},
                               {"lr", concat(kStepLr)},
                               {"beta1", concat(kStepBeta1)},
                               {"beta2", concat(kStepBeta2)},
                               {"eps", concat(kStepEps)},
                               {"weight_decay", concat(kStepWeightDecay)},
                               {"clip", concat(kStepClip)}});
  }
  ~PeerInput() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  PeerInput(const PeerInput&) = delete;
  PeerInput& operator=(const PeerInput&) = delete;

  std::string path() const { return path_; }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / concat("mantissa-bench-", getpid(), ".safetensors");
};

Step python_step(const std::string& python, const std::string& variant) {
  const PeerInput input;
  const auto peer = std::make_shared<PeerProcess>(
      std::vector<std::string>{python, MANTISSA_SOURCE_DIR "/bench/peer/training_step.py",
                               input.path(), variant, std::to_string(at::get_num_threads())});
  const auto step = [peer] { return std::stod(peer->ask("step")); };
  step();  // It has read the file when it answers.
  return step;
}

Contest against_python(const std::string& python, const std::string& variant, double tolerance,
                       int steps) {
  const Step ours = our_step(Format::bf16);
  const Step peer = python_step(python, variant);
  ours();
  Contest result = contest(ours, peer, tolerance, steps);
  result.pause_s = 0.05;
  return result;
}

Figure python_figure(const Setup& setup, const std::string& name, const std::string& meaning,
                     const std::vector<std::string>& variants, const Bars& bars, double share) {
  Figure figure{.name = "step/python-" + name,
                .meaning = "our BF16 step against Python's torch: " + meaning,
                .rows = {{"", Summary::worst, bars}},
                .share = share};
  if (setup.peer_python.empty()) {
    figure.unavailable = "asked for by --peer";
    return figure;
  }
  for (const std::string& variant : variants) {
    figure.cases.push_back(timed(
        variant,
        [=, python = setup.peer_python] { return against_python(python, variant, kSameInBf16, 2); },
        kFlops, "FLOP"));
  }
  return figure;
}

std::vector<Figure> figures(const Setup& setup) {
  const auto figure = [](const char* name, const char* meaning, std::function<Contest()> make,
                         const Bars& bars, double share) {
    return Figure{.name = concat("step/", name),
                  .meaning = meaning,
                  .cases = {timed(name, std::move(make), kFlops, "FLOP")},
                  .rows = {{"", Summary::worst, bars}},
                  .share = share};
  };
  const Bars autocast = {{20, 28}, {1.4, 1.8}};
  return {
      figure(
          "products",
          "our BF16 step against its linear and attention FLOPs at the speed of FP32 mm on its own "
          "shapes",
          against_products, {{0.7, 0.9}, {0.7, 0.9}}, 1),
      figure(
          "our-fp32", "our BF16 step against our FP32 step",
          [] { return contest(our_step(Format::bf16), our_step(Format::fp32), kSameInBf16); },
          {{0.97, 1.05}, {1.5, 1.8}}, 1),
      figure(
          "libtorch-fp32", "our BF16 step against plain LibTorch in FP32 with its fused AdamW",
          [] { return contest(our_step(Format::bf16), libtorch_step(Format::fp32), kSameInBf16); },
          {}, 1),
      figure(
          "fp32-libtorch-fp32", "our FP32 step against plain LibTorch in FP32 with its fused AdamW",
          [] { return contest(our_step(Format::fp32), libtorch_step(Format::fp32), kSameInFp32); },
          {}, 1),
      figure(
          "libtorch-autocast", "our BF16 step against plain LibTorch in BF16 under at::autocast",
          [] {
            return contest(our_step(Format::bf16), libtorch_step(Format::bf16), kSameInBf16,
                           /*steps=*/1);
          },
          autocast, 1),
      python_figure(setup, "fp32", "the best of eager, fused AdamW, and torch.compile with it",
                    {"eager", "fused", "compile"}, {{1.25, 1.6}, {1.8, 2.5}}, 2),
      python_figure(setup, "autocast", "BF16 autocast with fused AdamW", {"autocast"}, autocast,
                    1)};
}

const Subject subject("step", figures);

}  // namespace
}  // namespace mantissa::bench
