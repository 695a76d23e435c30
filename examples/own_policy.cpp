// A policy of your own for one module: the head overflows in FP16, so it runs in FP32.
#include <cstdio>

#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <c10/core/ScalarType.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/scope.h"

using mantissa::amp::Autocast;
using mantissa::tensor::Scope;

// Modules know no formats; a scope names them to the policy.
at::Tensor encode(const at::Tensor& x) {
  const Scope scope("encoder");
  return at::linear(x, at::full({1024, 16}, 0.5));
}

at::Tensor head(const at::Tensor& x) {
  const Scope scope("head");
  return at::linear(x, at::full({1, 1024}, 8.0));
}

void show(const char* text) {
  const mantissa::amp::Policy policy = mantissa::amp::find_policy(text);
  const Autocast region(policy);
  const at::Tensor hidden = encode(at::full({1, 16}, 1.0));
  const at::Tensor out = head(hidden);
  // 1024 products of 8 and 8 are 65536; the largest FP16 number is 65504.
  std::printf("%s: encoder in %s, head in %s, result %g\n", text,
              c10::toString(hidden.scalar_type()), c10::toString(out.scalar_type()),
              out.item<double>());
}

int main() {
  mantissa::ops::install_cpu_kernels();
  show("torch-fixed compute=fp16");
  show("torch-fixed compute=fp16 scope:head=fp32");
}
