// What a GPU makes of mantissa: tools/device_check.sh. Times are of the device, which each look at
// the clock waits for.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "bench/row.h"
#include "mantissa/amp/autocast.h"
#include "mantissa/amp/loss_scaler.h"
#include "mantissa/amp/parameter_formats.h"
#include "mantissa/base/error.h"
#include "mantissa/models/transformer.h"
#include "mantissa/ops/adamw.h"
#include "mantissa/ops/device_precision.h"
#include "mantissa/ops/linear_cross_entropy.h"
#include "mantissa/ops/norm.h"
#include "mantissa/optim/clip.h"
#include "mantissa/optim/optimizer.h"

namespace mantissa::bench {
namespace {

using at::Tensor;

const at::Device kDevice(at::kCUDA, 0);
const at::TensorOptions kFp32 = at::TensorOptions(at::kFloat).device(kDevice);
const at::TensorOptions kBf16 = at::TensorOptions(at::kBFloat16).device(kDevice);

double synchronized_seconds() {
  c10::cuda::device_synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// As timed() of bench/row.h, by that clock.
Case on_device(std::string name, std::function<Contest()> make, double work = 0,
               std::string work_unit = "") {
  return {.name = std::move(name),
          .measure =
              [make = std::move(make)](Sampling sampling) {
                sampling.now = synchronized_seconds;
                sampling.sample_s = 2e-2;
                const Samples samples = bench::measure(make(), sampling);
                c10::cuda::CUDACachingAllocator::emptyCache();
                return samples;
              },
          .work = work,
          .work_unit = std::move(work_unit)};
}

Bars bars(double least) { return {{least, {}}, {least, {}}}; }

// ----- G1: products

Contest product(int64_t rows, int64_t in, int64_t out) {
  const Tensor x = at::randn({rows, in}, kBf16);
  const Tensor weight = at::randn({out, in}, kFp32);
  const Tensor narrow = weight.to(at::kBFloat16);
  const auto region = std::make_shared<amp::Policy>(amp::find_policy("torch-fixed compute=bf16"));
  return {[=] {
            const at::NoGradGuard no_grad;
            const amp::Autocast autocast(*region);
            // The cast of the weight is once a step; here it would be once a product.
            (void)at::linear(x, narrow);
          },
          [=] { (void)at::mm(x, narrow.t()); }};
}

// ----- G2, G3, G6: steps

struct Net {
  models::TransformerOptions model;
  int64_t batch;
  int64_t context;

  // As bench/training_step.h counts: products of forward and backward, attention by halves.
  double flops() const {
    const auto tokens = static_cast<double>(batch * context);
    const auto width = static_cast<double>(model.width);
    const double weights = static_cast<double>(model.layers) *
                               (4 + 2 * static_cast<double>(model.mlp_ratio)) * width * width +
                           static_cast<double>(model.vocabulary) * width;
    return tokens * (6 * weights + 6 * static_cast<double>(model.layers * context) * width);
  }
};

const Net kGpt2 = {{.vocabulary = 50304, .layers = 12, .width = 768, .heads = 12}, 16, 1024};
const Net kSmall = {{.vocabulary = 16, .layers = 4, .width = 128, .heads = 4}, 8, 256};

class Trainer {
 public:
  Trainer(const Net& net, const std::string& policy, bool fused)
      : policy_(amp::find_policy(policy)),
        model_(with_fused(net.model, fused), 1, kDevice),
        formats_(policy_, model_.parameters()),
        tokens_(at::randint(net.model.vocabulary, {net.batch, net.context + 1},
                            at::TensorOptions(at::kLong).device(kDevice))) {
    formats_.cast_parameters_();
    optimizer_ = std::make_unique<optim::Optimizer>(model_.parameters(),
                                                    optim::OptimizerOptions{.fused = fused});
    scaler_ = std::make_unique<amp::LossScaler>(kDevice, amp::LossScalerOptions{.initial = 1024});
  }

  void step() {
    const int64_t context = tokens_.size(1) - 1;
    Tensor loss;
    {
      const amp::Autocast region(policy_, formats_);
      loss = model_.loss(tokens_.narrow(1, 0, context), tokens_.narrow(1, 1, context));
    }
    scaler_->scale(loss).backward();
    const optim::GradientReport report = optimizer_->read_gradients(scaler_->value());
    (void)optimizer_->enqueue_step({.lr = rate_,
                                    .scale = scaler_->value(),
                                    .clip_factor = optim::clip_factor(report.norm, 1),
                                    .found_inf = report.found_inf,
                                    .outcome = optim::OutcomeTransfer::on_demand});
    scaler_->update(report.found_inf);
    optimizer_->zero_grad();
  }

 private:
  static models::TransformerOptions with_fused(models::TransformerOptions options, bool fused) {
    options.fused = fused;
    return options;
  }

  amp::Policy policy_;
  models::Transformer model_;
  amp::ParameterFormats formats_;
  Tensor tokens_;
  Tensor rate_ = at::full({}, 1e-4, kFp32);
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<amp::LossScaler> scaler_;
};

constexpr const char* kBf16Policy = "torch-fixed compute=bf16 param=bf16";

Action step(const Net& net, const std::string& policy, bool fused = true, bool tf32 = false) {
  return [trainer = std::make_shared<Trainer>(net, policy, fused), tf32] {
    const ops::DevicePrecisionGuard precision({.tf32 = tf32});
    trainer->step();
  };
}

// The step as one graph, which takes no work of the host.
class CapturedStep {
 public:
  CapturedStep(const Net& net, const std::string& policy) : trainer_(net, policy, true) {
    c10::cuda::device_synchronize();  // what was made is on another stream
    const c10::cuda::CUDAStreamGuard guard(stream_);
    for (int i = 0; i < 3; ++i) {  // tables, handles and memory
      trainer_.step();
    }
    c10::cuda::device_synchronize();
    graph_.capture_begin();
    trainer_.step();
    graph_.capture_end();
  }

  void replay() {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    graph_.replay();
  }

 private:
  c10::cuda::CUDAStream stream_ = c10::cuda::getStreamFromPool();
  Trainer trainer_;
  at::cuda::CUDAGraph graph_;
};

// ----- G4: the optimizer

using Tensors = std::vector<Tensor>;

constexpr int64_t kTensors = 120;
constexpr int64_t kElements = 1 << 20;
constexpr double kParameters = static_cast<double>(kTensors * kElements);

Tensors tensors(const at::TensorOptions& options, bool random) {
  Tensors list;
  for (int64_t i = 0; i < kTensors; ++i) {
    list.push_back(random ? at::randn({kElements}, options) : at::zeros({kElements}, options));
  }
  return list;
}

Action our_optimizer(const at::TensorOptions& options) {
  tensor::ParameterList parameters;
  const Tensors gradients = tensors(options, true);
  for (int64_t i = 0; i < kTensors; ++i) {
    Tensor weight = at::randn({kElements}, options).requires_grad_();
    weight.mutable_grad() = gradients[static_cast<size_t>(i)];
    parameters.push_back({concat("w", i), weight});
  }
  const auto optimizer = std::make_shared<optim::Optimizer>(parameters, optim::OptimizerOptions{});
  return [optimizer, scale = at::ones({}, kFp32)] {
    const optim::GradientReport report = optimizer->read_gradients(scale);
    (void)optimizer->enqueue_step({.lr = 1e-3,
                                   .scale = scale,
                                   .clip_factor = optim::clip_factor(report.norm, 1e6),
                                   .found_inf = report.found_inf,
                                   .outcome = optim::OutcomeTransfer::on_demand});
  };
}

// The update alone.
Action our_adamw() {
  std::vector<ops::AdamwParameter> parameters;
  const Tensors gradients = tensors(kFp32, true);
  const Tensors weights = tensors(kFp32, true);
  for (size_t i = 0; i < gradients.size(); ++i) {
    ops::WeightUpdate weight;
    weight.master = weights[i];
    weight.gradient = gradients[i];
    weight.lr = 1e-3;
    weight.weight_decay = 0.1;
    parameters.push_back({weight, at::zeros_like(weights[i]), at::zeros_like(weights[i]),
                          at::zeros({}, kFp32.dtype(at::kLong))});
  }
  return [parameters] { ops::adamw_enqueued_(parameters, {}); };
}

struct LibtorchAdamw {
  Tensors weights = tensors(kFp32, true);
  Tensors gradients = tensors(kFp32, true);
  Tensors exp_avg = tensors(kFp32, false);
  Tensors exp_avg_sq = tensors(kFp32, false);
  Tensors steps = Tensors(kTensors, at::ones({}, kFp32));

  void run() {
    const at::NoGradGuard no_grad;
    at::_fused_adamw_(weights, gradients, exp_avg, exp_avg_sq, {}, steps, 1e-3, 0.9, 0.999, 0.1,
                      1e-8, /*amsgrad=*/false, /*maximize=*/false);
  }
};

Action libtorch_adamw() {
  return [state = std::make_shared<LibtorchAdamw>()] { state->run(); };
}

// b + c over as many bytes.
Action triad(double bytes) {
  const auto size = static_cast<int64_t>(bytes / 12);
  return [a = at::empty({size}, kFp32), b = at::randn({size}, kFp32),
          c = at::randn({size}, kFp32)]() mutable { at::add_out(a, b, c); };
}

// ----- G5: linear + cross-entropy

constexpr int64_t kRows = 32768;
constexpr int64_t kWidth = 768;
constexpr int64_t kClasses = 50257;

Action loss(bool ours) {
  const Tensor x = at::randn({kRows, kWidth}, kBf16).requires_grad_();
  const Tensor weight =
      at::randn({kClasses, kWidth}, kFp32).mul(0.05).to(at::kBFloat16).requires_grad_();
  const Tensor targets = at::randint(kClasses, {kRows}, kFp32.dtype(at::kLong));
  return [=] {
    const Tensor value =
        ours ? ops::linear_cross_entropy(x, weight, {}, targets)
             : at::cross_entropy_loss(at::linear(x, weight).to(at::kFloat), targets);
    value.backward();
    x.mutable_grad().reset();
    weight.mutable_grad().reset();
  };
}

double extra_bytes(bool ours) {
  namespace cache = c10::cuda::CUDACachingAllocator;
  const Action action = loss(ours);
  cache::resetPeakStats(kDevice.index());
  const auto allocated = [] { return cache::getDeviceStats(kDevice.index()).allocated_bytes[0]; };
  const int64_t before = allocated().current;
  action();
  return static_cast<double>(allocated().peak - before);
}

// ----- G7: norms

Action norm(bool ours) {
  constexpr int64_t kNorm = 4096;
  const Tensor x = at::randn({8192, kNorm}, kBf16).requires_grad_();
  const Tensor weight = at::randn({kNorm}, kBf16).requires_grad_();
  const Tensor bias = at::randn({kNorm}, kBf16).requires_grad_();
  const Tensor gradient = at::randn({8192, kNorm}, kBf16);
  return [=] {
    const Tensor y = ours ? ops::layer_norm(x, weight, bias, 1e-5)
                          : at::layer_norm(x, {kNorm}, weight, bias, 1e-5);
    y.backward(gradient);
    x.mutable_grad().reset();
    weight.mutable_grad().reset();
    bias.mutable_grad().reset();
  };
}
constexpr double kNormBytes =
    8192.0 * 4096 * 2 * 5;  // forward reads and writes, backward reads two

std::string missing() {
  const auto count = c10::cuda::device_count();
  return count > 0 ? "" : "no CUDA device: the driver shows none";
}

std::vector<Figure> figures(const Setup&) {
  constexpr double kBytes = (2 * 2 + 3 * 8 + 2) * kParameters;
  std::vector<Figure> all = {
      {.name = "device/G1",
       .meaning = "BF16 linear layers in a region against plain products",
       .cases = {on_device(
                     "8192x768x3072", [] { return product(8192, 768, 3072); },
                     2.0 * 8192 * 768 * 3072, "FLOP"),
                 on_device(
                     "8192x4096x4096", [] { return product(8192, 4096, 4096); },
                     2.0 * 8192 * 4096 * 4096, "FLOP"),
                 on_device(
                     "16384x8192x8192", [] { return product(16384, 8192, 8192); },
                     2.0 * 16384 * 8192 * 8192, "FLOP")},
       .rows = {{"", Summary::worst, bars(0.95)}}},
      {.name = "device/G2",
       .meaning = "steps of GPT-2 124M (T 1024) in BF16 with FP32 masters, against LibTorch's "
                  "operations",
       .cases = {on_device(
           "bf16",
           [] {
             return Contest{step(kGpt2, kBf16Policy), step(kGpt2, kBf16Policy, /*fused=*/false)};
           },
           kGpt2.flops(), "FLOP")},
       .rows = {{"", Summary::worst, bars(1)}},
       .share = 2},
      {.name = "device/G3",
       .meaning = "the step in BF16 against our FP32 one, TF32 off and on",
       .cases = {on_device("fp32",
                           [] {
                             return Contest{step(kGpt2, kBf16Policy), step(kGpt2, "fp32")};
                           }),
                 on_device("tf32",
                           [] {
                             return Contest{step(kGpt2, kBf16Policy),
                                            step(kGpt2, "fp32", true, /*tf32=*/true)};
                           })},
       .rows = {{"worst", Summary::worst, bars(1.5)}},
       .share = 3},
      {.name = "device/G4/adamw",
       .meaning = "our AdamW of 126 M FP32 parameters against at::_fused_adamw_",
       .cases = {on_device(
           "fp32",
           [] {
             return Contest{our_adamw(), libtorch_adamw()};
           },
           kParameters * 28, "B")},
       .rows = {{"", Summary::worst, bars(1)}}},
      {.name = "device/G4/bandwidth",
       .meaning = "our step of 126 M BF16 parameters with FP32 masters, gradients checked and "
                  "clipped, 30 bytes a parameter, against an addition over as many bytes",
       .cases = {on_device(
           "bf16",
           [] {
             return Contest{our_optimizer(kBf16), triad(kBytes)};
           },
           kBytes, "B")},
       .rows = {{"", Summary::worst, bars(0.85)}}},
      {.name = "device/G5/time",
       .meaning = "BF16 linear + cross-entropy, both passes, 32,768 rows and 50,257 classes, "
                  "against LibTorch's two operations",
       .cases = {on_device(
           "bf16",
           [] {
             return Contest{loss(true), loss(false)};
           },
           6.0 * kRows * kWidth * kClasses, "FLOP")},
       .rows = {{"", Summary::worst, bars(1 / 1.1)}}},
      {.name = "device/G5/memory",
       .meaning = "the same: bytes beyond what is there before",
       .cases = {counted("bf16",
                         [] {
                           return Bytes{extra_bytes(true), extra_bytes(false)};
                         })},
       .rows = {{"", Summary::worst, bars(4)}}},
      {.name = "device/G6",
       .meaning = "a small model's step as a CUDA graph against the same step enqueued",
       .cases = {on_device(
           "bf16",
           [] {
             const auto captured = std::make_shared<CapturedStep>(kSmall, kBf16Policy);
             return Contest{[captured] { captured->replay(); }, step(kSmall, kBf16Policy)};
           })},
       .rows = {{"", Summary::worst, bars(1.5)}}},
      {.name = "device/G7/eager",
       .meaning = "our BF16 LayerNorm of 4,096, both passes, against LibTorch's",
       .cases = {on_device("bf16",
                           [] {
                             return Contest{norm(true), norm(false)};
                           })},
       .rows = {{"", Summary::worst, bars(3)}}},
      {.name = "device/G7/bandwidth",
       .meaning = "the same against an addition over the bytes that it has to move",
       .cases = {on_device(
           "bf16",
           [] {
             return Contest{norm(true), triad(kNormBytes)};
           },
           kNormBytes, "B")},
       .rows = {{"", Summary::worst, bars(0.75)}}},
  };
  for (Figure& figure : all) {
    figure.unavailable = missing();
  }
  return all;
}

const Subject subject("device", figures);

}  // namespace
}  // namespace mantissa::bench
