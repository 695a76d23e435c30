// Rows of a table and their gradients: 4,096 tokens, 256 numbers a row.
#include <ATen/ops/embedding.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/row.h"
#include "mantissa/ops/embedding.h"

namespace mantissa::bench {
namespace {

constexpr int64_t kTokens = 4096;
constexpr int64_t kWidth = 256;

// Tokens of the first `used` rows.
Action both_passes(at::ScalarType dtype, int64_t rows, int64_t used, bool ours) {
  const at::Tensor table = at::randn({rows, kWidth}).to(dtype).requires_grad_();
  const at::Tensor tokens = at::randint(used, {kTokens}, at::kLong);
  const at::Tensor gradient = at::randn({kTokens, kWidth}).to(dtype);
  return [=] {
    const at::Tensor out =
        ours ? ops::embedding(table, tokens, -1, dtype) : at::embedding(table, tokens);
    torch::autograd::grad({out}, {table}, {gradient});
  };
}

Figure figure(const std::string& name, const std::string& meaning, at::ScalarType dtype,
              int64_t rows, int64_t used) {
  const auto make = [=] {
    return Contest{both_passes(dtype, rows, used, true), both_passes(dtype, rows, used, false)};
  };
  return {.name = "embedding/" + name,
          .meaning = "embedding, " + meaning + ", forward and backward, against LibTorch's",
          .cases = {timed(name, make)}};
}

std::vector<Figure> figures(const Setup&) {
  return {figure("dna-fp32", "16 rows, FP32", at::kFloat, 16, 5),
          figure("dna-bf16", "16 rows, BF16", at::kBFloat16, 16, 5),
          figure("text-fp32", "50,257 rows, FP32", at::kFloat, 50257, 50257),
          figure("text-bf16", "50,257 rows, BF16", at::kBFloat16, 50257, 50257)};
}

const Subject subject("embedding", figures);

}  // namespace
}  // namespace mantissa::bench
