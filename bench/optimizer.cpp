// One optimizer step of 8 M parameters, from gradients to weights.
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "bench/row.h"
#include "mantissa/base/error.h"
#include "mantissa/optim/clip.h"
#include "mantissa/optim/optimizer.h"

namespace mantissa::bench {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kTensors = 8;
constexpr int64_t kElements = 1 << 20;  // of each
constexpr double kParameters = kTensors * kElements;
constexpr double kClip = 1e6;  // above the norm: gradients stay as they are from step to step

Tensors random_tensors(at::ScalarType dtype) {
  Tensors tensors;
  for (int64_t i = 0; i < kTensors; ++i) {
    tensors.push_back(at::randn({kElements}).to(dtype));
  }
  return tensors;
}

Tensors zeros() {
  Tensors tensors;
  for (int64_t i = 0; i < kTensors; ++i) {
    tensors.push_back(at::zeros({kElements}));
  }
  return tensors;
}

Action ours(at::ScalarType dtype, ops::MomentFormat moments = ops::MomentFormat::fp32) {
  tensor::ParameterList parameters;
  const Tensors gradients = random_tensors(dtype);
  for (int64_t i = 0; i < kTensors; ++i) {
    at::Tensor weight = at::randn({kElements}).to(dtype).requires_grad_();
    weight.mutable_grad() = gradients[i];
    parameters.push_back({concat("w", i), weight});
  }
  const auto optimizer =
      std::make_shared<optim::Optimizer>(parameters, optim::OptimizerOptions{.moments = moments});
  return [optimizer, scale = at::ones({})] {
    const optim::GradientReport report = optimizer->read_gradients(scale);
    optimizer->step({.lr = 1e-3,
                     .scale = scale,
                     .clip_factor = optim::clip_factor(report.norm, kClip),
                     .found_inf = report.found_inf});
  };
}

// What a LibTorch program has for the same: `dtype` gradients are widened, unscaled, measured and
// clipped, masters updated by the fused AdamW and cast back.
class Sequence {
 public:
  explicit Sequence(at::ScalarType dtype) : narrow_(dtype != at::kFloat) {
    masters_ = random_tensors(at::kFloat);
    gradients_ = random_tensors(at::kFloat);
    if (narrow_) {
      weights_16_ = random_tensors(dtype);
      gradients_16_ = random_tensors(dtype);
    }
  }

  void fused_adamw() {
    const at::NoGradGuard no_grad;
    at::_fused_adamw_(masters_, gradients_, exp_avg_, exp_avg_sq_, {}, steps_, 1e-3, 0.9, 0.999,
                      0.1, 1e-8, /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{},
                      found_inf_);
  }

  void step() {
    const at::NoGradGuard no_grad;
    if (narrow_) {
      at::_foreach_copy_(gradients_, gradients_16_);
    }
    found_inf_.zero_();
    at::_amp_foreach_non_finite_check_and_unscale_(gradients_, found_inf_, inverse_scale_);
    const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients_)));
    at::_foreach_mul_(gradients_, norm.add(1e-6).reciprocal().mul(kClip).clamp_max(1));
    fused_adamw();
    if (narrow_) {
      at::_foreach_copy_(weights_16_, masters_);
    }
  }

 private:
  bool narrow_;
  Tensors masters_, gradients_, weights_16_, gradients_16_;
  Tensors exp_avg_ = zeros();
  Tensors exp_avg_sq_ = zeros();
  Tensors steps_ = Tensors(kTensors, at::ones({}));
  at::Tensor found_inf_ = at::zeros({});
  at::Tensor inverse_scale_ = at::ones({});
};

Action sequence(at::ScalarType dtype) {
  return [s = std::make_shared<Sequence>(dtype)] { s->step(); };
}

Action fused_adamw() {
  return [s = std::make_shared<Sequence>(at::kFloat)] { s->fused_adamw(); };
}

// b + 3 c over as many bytes.
Action triad(double bytes) {
  const auto size = static_cast<int64_t>(bytes / 12);
  return [a = at::empty({size}), b = at::randn({size}), c = at::randn({size})]() mutable {
    at::add_out(a, b, c, 3);
  };
}

Case against(const std::string& name, const std::function<Action()>& make_ours,
             const std::function<Action()>& make_peer) {
  return timed(
      name,
      [=] {
        return Contest{make_ours(), make_peer()};
      },
      kParameters, "parameters");
}

std::vector<Figure> figures(const Setup&) {
  const Bar bar = {3, 4};
  const auto of = [](at::ScalarType dtype) { return [=] { return sequence(dtype); }; };
  // Gradients read twice, masters and moments read and written, parameters written.
  constexpr double kBytes = (2 * 2 + 3 * 8 + 2) * kParameters;
  std::vector<Figure> all = {
      {.name = "optimizer/masters",
       .meaning = "our step of 16-bit parameters with FP32 masters against LibTorch's widen, "
                  "unscale, norm, clip, fused AdamW, cast; 8 M parameters",
       .cases = {against(
                     "bf16", [] { return ours(at::kBFloat16); }, of(at::kBFloat16)),
                 against(
                     "fp16", [] { return ours(at::kHalf); }, of(at::kHalf))},
       .rows = {{"worst", Summary::worst, {bar, bar}}}},
      {.name = "optimizer/bandwidth",
       .meaning = "our step of BF16 parameters with FP32 masters, 30 bytes a parameter, against a "
                  "triad over as many bytes",
       .cases = {against(
           "bf16", [] { return ours(at::kBFloat16); }, [] { return triad(kBytes); })},
       .rows = {{"", Summary::worst, {{{}, 0.85}, {{}, 0.85}}}},
       .share = 0.5},
      {.name = "optimizer/fp32",
       .meaning = "our step of FP32 parameters against LibTorch's unscale, norm, clip, fused AdamW",
       .cases = {against(
           "fp32", [] { return ours(at::kFloat); }, of(at::kFloat))},
       .share = 0.5}};
  const std::vector<std::pair<const char*, ops::MomentFormat>> moments = {
      {"fp32", ops::MomentFormat::fp32},
      {"bf16", ops::MomentFormat::bf16},
      {"blockwise8", ops::MomentFormat::blockwise8}};
  for (const auto& [name, format] : moments) {
    all.push_back({.name = concat("optimizer/moments/", name),
                   .meaning = concat("our step of FP32 parameters with ", name,
                                     " moments, gradients checked and clipped, against LibTorch's "
                                     "fused AdamW alone"),
                   .cases = {against(
                       name, [=, f = format] { return ours(at::kFloat, f); }, fused_adamw)},
                   .share = 0.25});
  }
  return all;
}

const Subject subject("optimizer", figures);

}  // namespace
}  // namespace mantissa::bench
