// Numbers that are not finite, or not there, when the step gets them.

#include <limits>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>

#include "case.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::nan_benchmark {

using at::Tensor;
using tensor::Scope;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Fills what is not initialized with NaN while it lives.
class Uninitialized {
 public:
  Uninitialized() { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true); }
  ~Uninitialized() { at::globalContext().setDeterministicAlgorithms(false, false); }
  Uninitialized(const Uninitialized&) = delete;
  Uninitialized& operator=(const Uninitialized&) = delete;
};

std::vector<Case> records() {
  return {
      by_code("nan_in_a_record", filled({2, 3}, 0.5),
              [](const Tensor& weight, bool is_faulty) {
                const Tensor record = values({1, is_faulty ? kNan : 2, 3}).view({1, 3});
                const Scope scope("encoder.first");
                return at::linear(record, weight);
              }),
      by_code("infinity_in_a_target", values({1, 2, 3}),
              [](const Tensor& x, bool is_faulty) {
                const Tensor target = values({1, is_faulty ? kInf : 2, 3});
                const Scope scope("loss.mse");
                return (x - target).pow(2).mean();
              }),
      by_value("infinity_in_a_weight", values({1, kInf, 3, 4}).view({2, 2}),
               values({1, 2, 3, 4}).view({2, 2}),
               [](const Tensor& weight) {
                 const Scope scope("blocks.5.project");
                 return at::linear(filled({1, 2}, 1), weight);
               }),
      by_code("nan_in_an_image", filled({1, 1, 4, 4}, 1),
              [](const Tensor& x, bool is_faulty) {
                std::vector<float> pixels(16, 0.5F);
                pixels[0] = is_faulty ? kNan : 0.25F;
                const Tensor image = values(pixels).view({1, 1, 4, 4});
                Tensor pooled;
                {
                  const Scope scope("stem.pool");
                  pooled = at::max_pool2d(image, {2, 2});
                }
                const Scope scope("stem.scale");
                return pooled * x.narrow(2, 0, 2).narrow(3, 0, 2);
              }),
      by_code("index_out_of_vocabulary", filled({4, 2}, 1),
              [](const Tensor& table, bool is_faulty) {
                const Scope scope("embedding.tokens");
                return at::embedding(table, values({0, is_faulty ? 4.0F : 3.0F}).to(at::kLong));
              }),
      by_code("batch_norm_of_an_infinite_batch", filled({3, 1}, 1),
              [](const Tensor& x, bool is_faulty) {
                const Tensor batch = values({1, is_faulty ? kInf : 2, 3}).view({3, 1});
                Tensor y;
                {
                  const Scope scope("stem.norm");
                  y = at::batch_norm(batch, {}, {}, filled({1}, 0), filled({1}, 1), true, 0.1, 1e-5,
                                     false);
                }
                const Scope scope("stem.scale");
                return y * x;
              }),
      by_code("mean_of_no_target", filled({4}, 1),
              [](const Tensor& x, bool is_faulty) {
                const Scope scope("loss.mean");
                return x.narrow(0, 0, is_faulty ? 0 : 2).mean();
              }),
      by_code("std_of_one_value", filled({4}, 1),
              [](const Tensor& x, bool is_faulty) {
                const Scope scope("metrics.spread");
                return x.narrow(0, 0, is_faulty ? 1 : 2).std();
              }),
  };
}

std::vector<Case> memory() {
  return {
      by_code("uninitialized_memory", values({1, 2, 3, 4}),
              [](const Tensor& x, bool is_faulty) {
                Tensor buffer;
                {
                  const Uninitialized memory;
                  buffer = at::empty({4}, at::kFloat);
                }
                buffer.narrow(0, 0, is_faulty ? 3 : 4).fill_(1);
                const Scope scope("cache.read");
                return x + buffer;
              }),
      by_value("weight_beyond_fp16", filled({2, 2}, 1e5), filled({2, 2}, 1),
               [](const Tensor& weight) {
                 Tensor converted;
                 {
                   const Scope scope("convert.head");
                   converted = half(weight);
                 }
                 const Scope scope("head");
                 return at::linear(filled({1, 2}, 1, at::kHalf), converted);
               }),
  };
}

}  // namespace

std::vector<Case> data_cases() {
  std::vector<Case> cases = records();
  const std::vector<Case> more = memory();
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace mantissa::nan_benchmark
