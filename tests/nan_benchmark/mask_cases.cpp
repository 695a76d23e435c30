// Masks: constants that FP16 does not hold, rows of which nothing is left, infinities that meet.

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/where.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLow = -1e9;

// Which of four positions are hidden: all, or the last two as behind the end of a sequence.
Tensor hidden(bool is_faulty) {
  return (is_faulty ? filled({4}, 1) : values({0, 0, 1, 1})).to(at::kBool);
}

const Tensor& scores() {
  static const Tensor x = values({1, 2, 3, 4});
  return x;
}

std::vector<Case> finite_masks() {
  return {
      by_code("mask_1e9_added", scores(),
              [](const Tensor& x, bool is_faulty) {
                Tensor masked;
                {
                  const Scope scope("attention.mask");
                  masked = half(x) + (is_faulty ? kLow : -1e4);
                }
                const Scope scope("attention.weights");
                return masked.softmax(-1);
              }),
      by_code("mask_1e9_times_hidden", scores(),
              [](const Tensor& x, bool is_faulty) {
                Tensor masked;
                {
                  const Scope scope("attention.mask");
                  masked = half(x) + hidden(is_faulty).to(at::kHalf) * (is_faulty ? kLow : -1e4);
                }
                const Scope scope("attention.weights");
                return masked.softmax(-1);
              }),
      by_code("mask_1e9_where", scores(),
              [](const Tensor& x, bool is_faulty) {
                Tensor masked;
                {
                  const Scope scope("attention.mask");
                  masked = at::where(hidden(is_faulty), is_faulty ? kLow : -1e4, half(x));
                }
                const Scope scope("attention.weights");
                return masked.softmax(-1);
              }),
      by_code("mask_1e9_filled", scores(),
              [](const Tensor& x, bool is_faulty) {
                Tensor masked;
                {
                  const Scope scope("attention.mask");
                  masked = at::masked_fill(half(x), hidden(is_faulty), is_faulty ? kLow : -1e4);
                }
                const Scope scope("attention.weights");
                return masked.softmax(-1);
              }),
  };
}

std::vector<Case> infinite_masks() {
  return {
      by_code("all_masked_softmax", scores(),
              [](const Tensor& x, bool is_faulty) {
                const Tensor masked = at::masked_fill(x, hidden(is_faulty), -kInf);
                const Scope scope("attention.weights");
                return masked.softmax(-1);
              }),
      by_code("all_masked_log_softmax", scores(),
              [](const Tensor& x, bool is_faulty) {
                const Tensor masked = at::masked_fill(x, hidden(is_faulty), -kInf);
                const Scope scope("policy_head");
                return masked.log_softmax(-1).narrow(0, 0, 2);
              }),
      by_code("all_masked_less_their_largest", scores(),
              [](const Tensor& x, bool is_faulty) {
                const Tensor masked = at::masked_fill(x, hidden(is_faulty), -kInf);
                const Scope scope("attention.weights");
                return (masked - masked.amax()).exp();
              }),
      by_code("all_masked_cross_entropy", scores(),
              [](const Tensor& x, bool is_faulty) {
                const Tensor masked = at::masked_fill(x, hidden(is_faulty), -kInf);
                const Scope scope("loss.next_action");
                return at::cross_entropy_loss(masked.unsqueeze(0), filled({1}, 0, at::kLong));
              }),
      by_code("all_masked_softmax_in_fp16", scores(),
              [](const Tensor& x, bool is_faulty) {
                const Tensor masked = at::masked_fill(half(x), hidden(is_faulty), -kInf);
                const Scope scope("attention.weights");
                return masked.softmax(-1);
              }),
      by_code("zero_times_infinity", scores(),
              [](const Tensor& x, bool is_faulty) {
                const Scope scope("attention.mask");
                return (x + hidden(false).to(at::kFloat) * (is_faulty ? -kInf : kLow)).softmax(-1);
              }),
      by_code("infinity_less_infinity", scores(),
              [](const Tensor& x, bool is_faulty) {
                const Tensor masked = at::masked_fill(x, hidden(false), -kInf);
                const Scope scope("attention.relative");
                return (masked + (is_faulty ? kInf : 1.0)).softmax(-1);
              }),
  };
}

}  // namespace

std::vector<Case> mask_cases() {
  std::vector<Case> cases = finite_masks();
  const std::vector<Case> more = infinite_masks();
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace mantissa::nan_benchmark
