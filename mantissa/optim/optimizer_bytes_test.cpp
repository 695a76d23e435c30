#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "mantissa/optim/ema.h"
#include "mantissa/optim/optimizer.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::optim {
namespace {

namespace memory = tensor::memory;
using memory::Category;
using memory::CategoryScope;

constexpr int64_t kParameters = 1 << 16;

struct Row {
  at::ScalarType dtype;
  OptimizerOptions options;
  bool has_ema;
  double bytes;  // a parameter, all together
};

// Of the allocator, in bytes a parameter: when a step is over and before the gradients go.
double counted(const Row& row) {
  const int64_t before = memory::live_bytes().total();
  at::Tensor weight;
  {
    const CategoryScope weights(Category::weights);
    weight = at::ones({kParameters}, row.dtype).requires_grad_();
  }
  Optimizer optimizer({{"w", weight}}, row.options);
  std::optional<Ema> ema;
  if (row.has_ema) {
    ema.emplace(optimizer, EmaOptions{});
  }
  weight.mul(weight).sum().backward();
  memory::reset_peak();
  const StepOutcome outcome = optimizer.step({.lr = 1e-3});
  if (ema) {
    ema->update(optimizer, outcome);
  }
  const int64_t live = memory::live_bytes().total() - before;
  // The step counts and scalars on the way are below a hundredth of a byte a parameter.
  EXPECT_LT(memory::peak_bytes().total() - before - live, kParameters / 100)
      << "a step makes a copy of something";
  const OptimizerBytes bytes = optimizer.bytes();
  const int64_t known =
      bytes.weights + bytes.masters + bytes.moments + bytes.gradients + (ema ? ema->bytes() : 0);
  EXPECT_NEAR(static_cast<double>(live - known) / kParameters, 0, 0.01);
  return static_cast<double>(live) / kParameters;
}

// The table of docs/guides/optimizers.md.
TEST(OptimizerBytes, AreThoseOfTheTableAndAStepTakesNoMore) {
  memory::install_counting_allocator();
  constexpr double kBlocks = 2 * (1 + 4.0 / 256);
  const auto bf16 = at::kBFloat16;
  using enum Masters;
  using Format = MomentFormat;
  const std::vector<Row> rows = {
      {at::kFloat, {}, false, 4 + 4 + 8},
      {at::kFloat, {.moments = Format::bf16}, false, 4 + 4 + 4},
      {at::kFloat, {.moments = Format::blockwise8}, false, 4 + 4 + kBlocks},
      {bf16, {.masters = fp32}, false, 2 + 2 + 4 + 8},
      {bf16, {.masters = split}, false, 2 + 2 + 2 + 8},
      {bf16, {.masters = compensated}, false, 2 + 2 + 2 + 8},
      {bf16, {.masters = stochastic}, false, 2 + 2 + 8},
      {bf16, {.masters = fp32, .moments = Format::bf16}, false, 2 + 2 + 4 + 4},
      {bf16, {.masters = split, .moments = Format::bf16}, false, 2 + 2 + 2 + 4},
      {bf16, {.masters = fp32, .moments = Format::blockwise8}, false, 2 + 2 + 4 + kBlocks},
      {bf16, {.masters = split, .moments = Format::blockwise8}, false, 2 + 2 + 2 + kBlocks},
      {bf16, {.masters = stochastic, .moments = Format::blockwise8}, false, 2 + 2 + kBlocks},
      {bf16, {.kind = Kind::sgd, .masters = split}, false, 2 + 2 + 2 + 4},
      {bf16,
       {.kind = Kind::sgd, .masters = split, .moments = Format::blockwise8},
       false,
       2 + 2 + 2 + kBlocks / 2},
      {bf16, {.masters = split}, true, 2 + 2 + 2 + 8 + 4},
  };
  for (const Row& row : rows) {
    // Within the step count of the parameter, a scalar.
    EXPECT_NEAR(counted(row), row.bytes, 0.01)
        << to_string(row.options.masters) << " " << to_string(row.options.moments);
  }
}

// Of ATen operations: what a step needs beside that is for one parameter at a time.
TEST(OptimizerBytes, AComposedStepTakesTemporariesOfOneParameter) {
  memory::install_counting_allocator();
  using enum Masters;
  for (const auto& [dtype, masters] : {std::pair{at::kFloat, fp32},
                                       {at::kBFloat16, fp32},
                                       {at::kBFloat16, split},
                                       {at::kBFloat16, compensated},
                                       {at::kBFloat16, none}}) {
    const at::Tensor v = at::ones({kParameters}, dtype).requires_grad_();
    const at::Tensor w = at::ones({kParameters}, dtype).requires_grad_();
    Optimizer optimizer({{"v", v}, {"w", w}}, {.masters = masters, .fused = false});
    v.mutable_grad() = at::ones({kParameters}, dtype);
    w.mutable_grad() = at::ones({kParameters}, dtype);
    const int64_t before = memory::live_bytes().total();
    memory::reset_peak();
    const GradientReport report = optimizer.read_gradients(at::ones({}));
    (void)optimizer.enqueue_step(
        {.lr = 1e-3, .scale = at::ones({}), .found_inf = report.found_inf});
    EXPECT_LE(static_cast<double>(memory::peak_bytes().total() - before) / kParameters, 24.01)
        << dtype << " " << to_string(masters);
  }
}

}  // namespace
}  // namespace mantissa::optim
