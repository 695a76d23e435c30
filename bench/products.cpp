// Matrix products in 16 bits against FP32 ones and against LibTorch's own 16-bit ones.
#include <array>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include "bench/row.h"
#include "bench/training_step.h"
#include "mantissa/base/error.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::bench {
namespace {

using numerics::Format;
using ops::CpuKernels;

struct Product {
  int64_t m, k, n;
  std::string layout;  // of a and b: N as they are in memory, T transposed
};

double flops(const Product& p) { return 2.0 * static_cast<double>(p.m * p.k * p.n); }

at::Tensor factor(int64_t rows, int64_t columns, char layout, at::ScalarType dtype) {
  return layout == 'N' ? at::randn({rows, columns}).to(dtype)
                       : at::randn({columns, rows}).to(dtype).t();
}

Action product(const Product& p, Format format, CpuKernels kernels) {
  const at::ScalarType dtype = tensor::dtype_of(format);
  const at::Tensor a = factor(p.m, p.k, p.layout[0], dtype);
  const at::Tensor b = factor(p.k, p.n, p.layout[1], dtype);
  return [=] {
    const at::NoGradGuard no_grad;
    const ops::CpuKernelsGuard guard(kernels);
    at::mm(a, b);
  };
}

// Ours in `format` against LibTorch's kernel in `peer_format`.
Case contest(const std::string& name, const Product& p, Format format, Format peer_format) {
  return timed(
      name,
      [=] {
        return Contest{product(p, format, ops::cpu_kernels()),
                       product(p, peer_format, CpuKernels::stock)};
      },
      flops(p), "FLOP");
}

// Long ones last: they get the time that the others leave.
std::vector<Case> squares(const std::vector<int64_t>& sizes,
                          const std::vector<std::string>& layouts, Format format,
                          Format peer_format) {
  std::vector<Case> cases;
  for (int64_t size : sizes) {
    for (const std::string& layout : layouts) {
      cases.push_back(
          contest(concat(size, ' ', layout), {size, size, size, layout}, format, peer_format));
    }
  }
  return cases;
}

// What forward and backward of the linear layers of the step multiply.
std::vector<Case> linears(Format format) {
  std::vector<Case> cases;
  for (const LinearShape& s : step_linears()) {
    const auto add = [&](const char* what, const Product& p) {
      cases.push_back(contest(concat(s.name, ' ', what), p, format, Format::fp32));
    };
    add("forward", {kStepTokens, s.in, s.out, "NT"});
    add("input gradient", {kStepTokens, s.out, s.in, "NN"});
    add("weight gradient", {s.out, kStepTokens, s.in, "TN"});
  }
  return cases;
}

std::vector<Figure> figures(const Setup&) {
  std::vector<Figure> all;
  const std::vector<std::string> layouts = {"NN", "NT", "TN", "TT"};
  for (const auto& [format, name] : {std::pair{Format::bf16, "BF16"}, {Format::fp16, "FP16"}}) {
    const std::string stem(numerics::to_string(format));
    all.push_back({.name = "products/" + stem,
                   .meaning = concat(
                       name, " mm against FP32 mm of LibTorch; 256 to 4096 square, four layouts"),
                   .cases = squares({256, 512, 1024, 2048, 4096}, layouts, format, Format::fp32),
                   .rows = {{"geometric mean", Summary::geometric_mean, {{0.95, 1.05}, {1.6, 1.9}}},
                            {"worst", Summary::worst, {{0.75, 0.9}, {1.4, {}}}}},
                   .share = 6});
    all.push_back({.name = "products/" + stem + "/step",
                   .meaning = concat(name,
                                     " mm against FP32 mm of LibTorch; linear layers of the step, "
                                     "forward and both gradients"),
                   .cases = linears(format),
                   .rows = {{"geometric mean", Summary::geometric_mean, {{1.1, 1.2}, {1.6, 1.9}}},
                            {"worst", Summary::worst, {}}}});
  }
  all.push_back({.name = "products/libtorch/NN",
                 .meaning = "BF16 mm against BF16 mm of LibTorch; 256 to 1024 square, NN",
                 .cases = squares({256, 512, 1024}, {"NN"}, Format::bf16, Format::bf16),
                 .rows = {{"worst", Summary::worst, {.avx2 = {10, 50}}}}});
  all.push_back({.name = "products/libtorch/NT-TN-TT",
                 .meaning = "BF16 mm against BF16 mm of LibTorch; 256 and 512 square, NT TN TT",
                 .cases = squares({256, 512}, {"NT", "TN", "TT"}, Format::bf16, Format::bf16),
                 .rows = {{"worst", Summary::worst, {.avx2 = {5, 10}}}}});
  all.push_back({.name = "products/small",
                 .meaning =
                     "BF16 mm against FP32 mm of LibTorch; 4 to 192 square, where the cost of a "
                     "call counts",
                 .cases = squares({4, 16, 64, 96, 128, 192}, {"NN"}, Format::bf16, Format::fp32),
                 .rows = {{"worst", Summary::worst, {}}},
                 .share = 0.1});
  return all;
}

const Subject subject("products", figures);

}  // namespace
}  // namespace mantissa::bench
