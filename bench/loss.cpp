// A linear layer with its cross-entropy, and their gradients: 8,192 rows of 256 numbers, 50,257
// classes.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "bench/row.h"
#include "mantissa/ops/linear_cross_entropy.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::bench {
namespace {

using numerics::Format;

constexpr int64_t kRows = 8192;
constexpr int64_t kWidth = 256;
constexpr int64_t kClasses = 50257;
constexpr double kFlops = 6.0 * kRows * kWidth * kClasses;

Action both_passes(Format format, bool ours) {
  const at::ScalarType dtype = tensor::dtype_of(format);
  const at::Tensor x = at::randn({kRows, kWidth}).to(dtype).requires_grad_();
  const at::Tensor weight = at::randn({kClasses, kWidth}).mul(0.05).to(dtype).requires_grad_();
  const at::Tensor targets = at::randint(kClasses, {kRows}, at::kLong);
  return [=] {
    const at::Tensor loss = ours ? ops::linear_cross_entropy(x, weight, {}, targets)
                                 : at::cross_entropy_loss(at::linear(x, weight), targets);
    loss.backward();
    x.mutable_grad().reset();
    weight.mutable_grad().reset();
  };
}

// At the peak, beyond what is there before and the two gradients.
double extra_bytes(Format format, bool ours) {
  namespace memory = tensor::memory;
  const Action action = both_passes(format, ours);
  const int64_t before = memory::live_bytes().total();
  memory::reset_peak();
  action();
  const int64_t element = format == Format::fp32 ? 4 : 2;
  const int64_t gradients = (kRows + kClasses) * kWidth * element;
  return static_cast<double>(memory::peak_bytes().total() - before - gradients);
}

std::vector<Figure> figures(const Setup&) {
  std::vector<Figure> all;
  for (const auto& [format, name] : {std::pair{Format::fp32, "FP32"}, {Format::bf16, "BF16"}}) {
    const std::string stem(numerics::to_string(format));
    all.push_back(
        {.name = "loss/time/" + stem,
         .meaning = std::string(name) +
                    " linear + cross-entropy, forward and backward, against LibTorch's "
                    "two operations in FP32",
         .cases = {timed(
             stem,
             [format = format] {
               return Contest{both_passes(format, true), both_passes(Format::fp32, false)};
             },
             kFlops, "FLOP")},
         .rows = {{"", Summary::worst, {{1, 1.25}, {1, 1.25}}}},
         .share = 2});
    all.push_back({.name = "loss/memory/" + stem,
                   .meaning = "the same: bytes beyond inputs and gradients",
                   .cases = {counted(
                       stem,
                       [format = format] {
                         return Bytes{extra_bytes(format, true), extra_bytes(Format::fp32, false)};
                       })},
                   .rows = {{"", Summary::worst, {{8, 20}, {8, 20}}}}});
  }
  return all;
}

const Subject subject("loss", figures);

}  // namespace
}  // namespace mantissa::bench
