// LayerNorm and RMSNorm with their gradients: 4,096 rows of 256 numbers.
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/row.h"
#include "mantissa/ops/norm.h"

namespace mantissa::bench {
namespace {

constexpr int64_t kRows = 4096;
constexpr int64_t kWidth = 256;

enum class Norm : uint8_t { layer, rms };

Action both_passes(Norm norm, at::ScalarType dtype, bool ours) {
  const at::Tensor x = at::randn({kRows, kWidth}).to(dtype).requires_grad_();
  const at::Tensor weight = at::ones({kWidth}).to(dtype).requires_grad_();
  const at::Tensor bias = at::ones({kWidth}).to(dtype).requires_grad_();
  const at::Tensor gradient = at::randn({kRows, kWidth}).to(dtype);
  if (norm == Norm::rms) {
    return [=] {
      const at::Tensor out =
          ours ? ops::rms_norm(x, weight) : at::rms_norm(x, {kWidth}, weight, 1e-6);
      torch::autograd::grad({out}, {x, weight}, {gradient});
    };
  }
  return [=] {
    const at::Tensor out =
        ours ? ops::layer_norm(x, weight, bias) : at::layer_norm(x, {kWidth}, weight, bias);
    torch::autograd::grad({out}, {x, weight, bias}, {gradient});
  };
}

Figure figure(const std::string& name, Norm norm, at::ScalarType dtype, const Bar& bar) {
  const auto make = [=] {
    return Contest{both_passes(norm, dtype, true), both_passes(norm, dtype, false)};
  };
  return {.name = "norms/" + name,
          .meaning = name + ", forward and backward, against LibTorch's",
          .cases = {timed(name, make)},
          .rows = {{"", Summary::worst, {bar, bar}}}};
}

std::vector<Figure> figures(const Setup&) {
  return {figure("rms_norm", Norm::rms, at::kFloat, {3, 4}),
          figure("rms_norm-bf16", Norm::rms, at::kBFloat16, {3, 4}),
          figure("layer_norm", Norm::layer, at::kFloat, {1.1, 1.15}),
          figure("layer_norm-bf16", Norm::layer, at::kBFloat16, {1.5, 2})};
}

const Subject subject("norms", figures);

}  // namespace
}  // namespace mantissa::bench
