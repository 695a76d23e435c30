#include "mantissa/models/transformer.h"

#include <cmath>
#include <memory>
#include <set>
#include <string>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::models {
namespace {

const TransformerOptions kTiny = {.vocabulary = 7, .layers = 2, .width = 8, .heads = 2};

at::Tensor random_tokens(int64_t batch, int64_t length, uint64_t seed) {
  Random random(seed, 0);
  std::vector<int64_t> ids(static_cast<size_t>(batch * length));
  for (int64_t& id : ids) {
    id = static_cast<int64_t>(random.below(7));
  }
  return at::tensor(ids, at::kLong).view({batch, length});
}

TEST(Transformer, SeedDecidesTheParameters) {
  const auto a = Transformer(kTiny, 5).parameters();
  const auto b = Transformer(kTiny, 5).parameters();
  const auto c = Transformer(kTiny, 6).parameters();
  ASSERT_EQ(a.size(), 1 + 2 * 8 + 2U);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_TRUE(at::equal(a[i].value, b[i].value)) << a[i].name;
  }
  EXPECT_FALSE(at::equal(a[0].value, c[0].value));
}

// Where operations run: the record function of LibTorch sees each one inside of its scope.
TEST(Transformer, ScopesAreThoseOfTheForwardPass) {
  static std::set<std::string>* seen = nullptr;
  std::set<std::string> scopes;
  seen = &scopes;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
        seen->insert(tensor::current_scope());
        return nullptr;
      }));
  const Transformer model(kTiny, 1);
  (void)model.forward(random_tokens(1, 6, 2));
  at::removeCallback(handle);
  scopes.erase("");
  std::set<std::string> told;
  for (const std::string& scope : model.scopes()) {
    told.insert(scope);
  }
  told.erase("blocks.0");  // nothing runs there but what is further inside
  told.erase("blocks.1");
  EXPECT_EQ(scopes, told);
}

TEST(Transformer, CausalLogitsDoNotSeeLaterTokens) {
  const Transformer model(kTiny, 1);
  const at::Tensor tokens = random_tokens(1, 6, 2);
  const at::Tensor changed = tokens.clone();
  changed[0][5] = (tokens[0][5].item<int64_t>() + 1) % 7;
  const at::Tensor before = model.forward(tokens);
  const at::Tensor after = model.forward(changed);
  EXPECT_TRUE(at::equal(before.narrow(1, 0, 5), after.narrow(1, 0, 5)));
  EXPECT_FALSE(at::equal(before, after));
}

TEST(Transformer, BidirectionalLogitsSeeAllTokens) {
  TransformerOptions options = kTiny;
  options.direction = Direction::bidirectional;
  const Transformer model(options, 1);
  const at::Tensor tokens = random_tokens(1, 6, 2);
  const at::Tensor changed = tokens.clone();
  changed[0][5] = (tokens[0][5].item<int64_t>() + 1) % 7;
  EXPECT_FALSE(at::equal(model.forward(tokens)[0][0], model.forward(changed)[0][0]));
}

TEST(Transformer, IgnoresTargetsOfMinus100) {
  const Transformer model(kTiny, 1);
  const at::Tensor tokens = random_tokens(2, 6, 3);
  const at::Tensor targets = random_tokens(2, 6, 4);
  const at::Tensor masked = targets.clone();
  masked[1].fill_(-100);
  const double first_row =
      model.loss(tokens.narrow(0, 0, 1), targets.narrow(0, 0, 1)).item<double>();
  // A mean of six FP32 terms near ln 7, in another order of sums: a few ulps of 2.
  EXPECT_NEAR(model.loss(tokens, masked).item<double>(), first_row, 8 * 0x1p-22);
}

// One operation or two: FP32 rounding of a mean of 12 terms near ln 7, and of gradients below 1.
TEST(Transformer, TheFusedLossIsThatOfTheLogits) {
  const at::Tensor tokens = random_tokens(2, 6, 3);
  const at::Tensor targets = random_tokens(2, 6, 4);
  targets[1][2].fill_(-100);
  TransformerOptions options = kTiny;
  const Transformer fused(options, 1);
  options.fused = false;
  const Transformer in_two(options, 1);
  const at::Tensor loss = fused.loss(tokens, targets);
  const at::Tensor expected = in_two.loss(tokens, targets);
  EXPECT_TRUE(at::equal(expected, token_loss(in_two.forward(tokens), targets)));
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 8 * 0x1p-22);
  loss.backward();
  expected.backward();
  for (size_t i = 0; i < fused.parameters().size(); ++i) {
    const at::Tensor difference =
        fused.parameters()[i].value.grad().sub(in_two.parameters()[i].value.grad()).abs();
    EXPECT_LE(difference.max().item<float>(), 0x1p-18) << fused.parameters()[i].name;
  }
}

// Central differences in double: truncation h^2 and cancellation u/h are both near 1e-10 at
// h = 1e-5, and the rotary tables are constants.
void expect_gradients_of_finite_differences(const TransformerOptions& options) {
  Transformer model(options, 9);
  for (const tensor::Parameter& parameter : model.parameters()) {
    parameter.value.set_data(parameter.value.detach().to(at::kDouble));
  }
  const at::Tensor tokens = random_tokens(2, 5, 10);
  const at::Tensor targets = random_tokens(2, 5, 11);
  const auto loss = [&] {
    at::manual_seed(12);  // the same masks
    return model.loss(tokens, targets);
  };
  loss().backward();
  const double h = 1e-5;
  for (const tensor::Parameter& parameter : model.parameters()) {
    const at::NoGradGuard no_grad;
    auto* values = parameter.value.mutable_data_ptr<double>();
    const int64_t last = parameter.value.numel() - 1;
    for (int64_t i : {int64_t{0}, last / 2, last}) {
      const double value = values[i];
      values[i] = value + h;
      const double above = loss().item<double>();
      values[i] = value - h;
      const double below = loss().item<double>();
      values[i] = value;
      EXPECT_NEAR(parameter.value.grad().view(-1)[i].item<double>(), (above - below) / (2 * h),
                  1e-8)
          << parameter.name << "[" << i << "]";
    }
  }
}

TEST(Transformer, GradientsMatchFiniteDifferences) {
  expect_gradients_of_finite_differences(kTiny);
}

TEST(Transformer, GradientsWithDropoutMatchFiniteDifferences) {
  TransformerOptions options = kTiny;
  options.dropout = 0.25;
  expect_gradients_of_finite_differences(options);
}

TEST(Transformer, DropoutIsOfTrainingAloneAndDrawsFromTheDefaultGenerator) {
  const at::Tensor tokens = random_tokens(2, 6, 3);
  TransformerOptions options = kTiny;
  for (const bool fused : {true, false}) {
    options.fused = fused;
    options.dropout = 0;
    const at::Tensor without = Transformer(options, 1).forward(tokens);
    options.dropout = 0.25;
    const Transformer model(options, 1);
    at::manual_seed(5);
    const at::Tensor first = model.forward(tokens);
    EXPECT_FALSE(at::equal(first, without));
    EXPECT_FALSE(at::equal(model.forward(tokens), first));
    at::manual_seed(5);
    EXPECT_TRUE(at::equal(model.forward(tokens, Mode::evaluation), without));
    EXPECT_TRUE(at::equal(model.forward(tokens), first));
    EXPECT_EQ(model.loss(tokens, tokens, Mode::evaluation).item<float>(),
              Transformer(options, 1).loss(tokens, tokens, Mode::evaluation).item<float>());
  }
}

TEST(Transformer, RefusesImpossibleShapesByName) {
  TransformerOptions options = kTiny;
  options.width = 9;
  try {
    const Transformer model(options, 0);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "transformer: width 9 with 2 heads; the width must be a multiple of twice the "
                 "heads");
  }
  options = kTiny;
  options.layers = 0;
  EXPECT_THROW(Transformer(options, 0), InvalidArgument);
  options = kTiny;
  options.dropout = 1;
  EXPECT_EQ(message_of<InvalidArgument>([&] { Transformer(options, 0); }),
            "transformer: dropout is 1; pass a probability below 1");
  EXPECT_THROW((void)Transformer(kTiny, 0).forward(at::full({3}, 1, at::kLong)), InvalidArgument);
  EXPECT_EQ(message_of<InvalidArgument>([] {
              (void)Transformer(kTiny, 0).loss(random_tokens(2, 6, 3), random_tokens(2, 5, 4));
            }),
            "token_loss: targets have shape [2, 5] and dtype Long; pass int64 of the tokens' shape "
            "[2, 6]");
}

}  // namespace
}  // namespace mantissa::models
