// Models for which both strands of a sequence are the same: f(rc(x)) is f(x) from the other end,
// with the tokens' complements.
#include <memory>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/models/hyena.h"
#include "mantissa/models/transformer.h"

namespace mantissa::models {
namespace {

using at::Tensor;

constexpr int64_t kVocabulary = 12;
constexpr int64_t kWidth = 16;
const std::vector<int64_t> kComplement = {0, 1, 2, 3, 4, 5, 6, 10, 9, 8, 7, 11};

std::unique_ptr<LanguageModel> transformer(std::vector<int64_t> complement, bool fused,
                                           Recompute recompute = Recompute::none) {
  return std::make_unique<Transformer>(TransformerOptions{.vocabulary = kVocabulary,
                                                          .layers = 2,
                                                          .width = kWidth,
                                                          .heads = 2,
                                                          .direction = Direction::bidirectional,
                                                          .complement = std::move(complement),
                                                          .fused = fused,
                                                          .recompute = recompute},
                                       5);
}

std::unique_ptr<LanguageModel> hyena(std::vector<int64_t> complement, bool fused,
                                     Recompute recompute = Recompute::none) {
  return std::make_unique<Hyena>(HyenaOptions{.vocabulary = kVocabulary,
                                              .layers = 2,
                                              .width = kWidth,
                                              .filter = {.positions = 64},
                                              .direction = Direction::bidirectional,
                                              .complement = std::move(complement),
                                              .fused = fused,
                                              .recompute = recompute},
                                 5);
}

constexpr auto kMakers = {&transformer, &hyena};

Tensor tokens(int64_t length) {
  at::manual_seed(length);
  return at::randint(kVocabulary, {3, length}, at::kLong);
}

Tensor complement() { return at::tensor(kComplement, at::kLong); }

Tensor other_strand(const Tensor& x) {
  return complement().index_select(0, x.flatten()).view_as(x).flip(1);
}

Tensor other_logits(const Tensor& logits) { return logits.flip(1).index_select(2, complement()); }

double largest(const Tensor& x) { return x.abs().max().item<double>(); }

void to_double(const LanguageModel& model) {
  for (const tensor::Parameter& parameter : model.parameters()) {
    parameter.value.set_data(parameter.value.detach().to(at::kDouble));
  }
}

// Both sides add up the same numbers. What differs is their order in the head, 2 D products of
// hidden numbers of variance one and weights of variance 1/D, some 2 * 16 * 2^-24 of numbers of
// about one, and, where LibTorch multiplies, the order in products of other rows, which the
// blocks' norms keep of that size: 64 u in all for the 4 products of each of two blocks.
void expect_equivariant(const LanguageModel& model, int64_t length, double roundoff) {
  SCOPED_TRACE(length);
  const Tensor x = tokens(length);
  const Tensor logits = model.forward(x);
  const Tensor from_other = other_logits(model.forward(other_strand(x)));
  EXPECT_LE(largest(logits - from_other), (2 * kWidth + 2 * 4 * 64) * roundoff * largest(logits));
  // The loss of a strand, and its gradients, are those of the other.
  const Tensor targets = tokens(length);
  model.loss(x, targets).backward();
  std::vector<Tensor> gradients;
  for (const tensor::Parameter& parameter : model.parameters()) {
    gradients.push_back(std::exchange(parameter.value.mutable_grad(), Tensor()));
  }
  model.loss(other_strand(x), other_strand(targets)).backward();
  size_t i = 0;
  for (const tensor::Parameter& parameter : model.parameters()) {
    const Tensor gradient = std::exchange(parameter.value.mutable_grad(), Tensor());
    EXPECT_LE(largest(gradient - gradients[i]), 4096 * roundoff * largest(gradient))
        << parameter.name;
    ++i;
  }
}

TEST(ReverseComplement, PredictionsOfAStrandAreThoseOfTheOther) {
  for (const auto make : kMakers) {
    for (const bool fused : {true, false}) {
      const auto model = make(kComplement, fused, Recompute::none);
      for (const int64_t length : {1, 8, 37}) {
        expect_equivariant(*model, length, 0x1p-24);
      }
      to_double(*model);
      for (const int64_t length : {1, 8, 37}) {
        expect_equivariant(*model, length, 0x1p-53);
      }
    }
  }
}

// The test above can fail.
TEST(ReverseComplement, IsNotSoWithoutTheOption) {
  for (const auto make : kMakers) {
    const auto model = make({}, true, Recompute::none);
    const Tensor x = tokens(37);
    const Tensor logits = model->forward(x);
    EXPECT_GT(largest(logits - other_logits(model->forward(other_strand(x)))), 0.1);
  }
}

// Caduceus-PS shares parameters: the sum of what the plain model says of both strands.
TEST(ReverseComplement, IsTheSumOfThePlainModelOfBothStrands) {
  for (const auto make : kMakers) {
    const auto model = make(kComplement, true, Recompute::none);
    const auto plain = make({}, true, Recompute::none);
    ASSERT_EQ(model->parameters().size(), plain->parameters().size());
    to_double(*model);
    to_double(*plain);
    const Tensor x = tokens(37);
    const Tensor sum = plain->forward(x) + other_logits(plain->forward(other_strand(x)));
    EXPECT_LE(largest(model->forward(x) - sum), 1024 * 0x1p-53 * largest(sum));
  }
}

TEST(ReverseComplement, RecomputationChangesNoBit) {
  for (const auto make : kMakers) {
    const Tensor x = tokens(37);
    std::vector<Tensor> expected;
    for (const Recompute recompute : {Recompute::none, Recompute::elementwise, Recompute::full}) {
      const auto model = make(kComplement, true, recompute);
      model->loss(x, x).backward();
      size_t i = 0;
      for (const tensor::Parameter& parameter : model->parameters()) {
        if (recompute == Recompute::none) {
          expected.push_back(parameter.value.grad());
        }
        EXPECT_TRUE(at::equal(parameter.value.grad(), expected[i++])) << parameter.name;
      }
    }
  }
}

TEST(ReverseComplement, ACausalTransformerIsRefused) {
  EXPECT_EQ(message_of<InvalidArgument>(
                [] { Transformer({.vocabulary = kVocabulary, .complement = kComplement}, 0); }),
            "transformer: a causal model cannot be reverse-complement equivariant, for it would "
            "see on the other strand what it is to predict; make it bidirectional");
}

}  // namespace
}  // namespace mantissa::models
