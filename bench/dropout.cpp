// Dropout of 4,096 rows of 256 numbers, and its sum with a residual.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/row.h"
#include "mantissa/ops/dropout.h"

namespace mantissa::bench {
namespace {

constexpr int64_t kRows = 4096;
constexpr int64_t kWidth = 256;
constexpr double kP = 0.1;

at::Tensor numbers(at::ScalarType dtype) { return at::randn({kRows, kWidth}).to(dtype); }

Action both_passes(at::ScalarType dtype, bool ours) {
  const at::Tensor x = numbers(dtype).requires_grad_();
  const at::Tensor gradient = numbers(dtype);
  return [=] {
    const at::Tensor out = ours ? ops::dropout(x, kP) : at::dropout(x, kP, /*train=*/true);
    torch::autograd::grad({out}, {x}, {gradient});
  };
}

// A branch of `dtype` to an FP32 residual.
Action both_passes_of_add(at::ScalarType dtype, bool ours) {
  const at::Tensor x = numbers(dtype).requires_grad_();
  const at::Tensor residual = numbers(at::kFloat).requires_grad_();
  const at::Tensor gradient = numbers(at::kFloat);
  return [=] {
    const at::Tensor out = ours ? ops::dropout_add(x, residual, kP)
                                : at::add(residual, at::dropout(x, kP, /*train=*/true));
    torch::autograd::grad({out}, {x, residual}, {gradient});
  };
}

Action dropout_alone(at::ScalarType dtype) {
  const at::Tensor x = numbers(dtype);
  return [=] { ops::dropout(x, kP); };
}

Action add_alone(at::ScalarType dtype) {
  const at::Tensor x = numbers(dtype);
  const at::Tensor y = numbers(dtype);
  return [=] { at::add(x, y); };
}

using Passes = Action (*)(at::ScalarType dtype, bool ours);

Figure against_libtorch(const std::string& name, at::ScalarType dtype, Passes passes,
                        const std::string& meaning) {
  const auto make = [=] { return Contest{passes(dtype, true), passes(dtype, false)}; };
  return {.name = "dropout/" + name,
          .meaning = meaning + ", forward and backward, against LibTorch's",
          .cases = {timed(name, make)}};
}

Figure against_add(const std::string& name, at::ScalarType dtype) {
  const auto make = [=] { return Contest{dropout_alone(dtype), add_alone(dtype)}; };
  return {.name = "dropout/" + name,
          .meaning = "dropout forward against an addition, " + name,
          .cases = {timed(name, make)}};
}

std::vector<Figure> figures(const Setup&) {
  return {against_libtorch("fp32", at::kFloat, both_passes, "FP32 dropout"),
          against_libtorch("bf16", at::kBFloat16, both_passes, "BF16 dropout"),
          against_libtorch("add-fp32", at::kFloat, both_passes_of_add,
                           "an FP32 residual plus FP32 dropout"),
          against_libtorch("add-bf16", at::kBFloat16, both_passes_of_add,
                           "an FP32 residual plus BF16 dropout"),
          against_add("limit-fp32", at::kFloat),
          against_add("limit-bf16", at::kBFloat16)};
}

const Subject subject("dropout", figures);

}  // namespace
}  // namespace mantissa::bench
