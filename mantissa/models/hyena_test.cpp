#include "mantissa/models/hyena.h"

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/random.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::models {
namespace {

using at::Tensor;

constexpr int64_t kVocabulary = 7;

HyenaOptions tiny() {
  return {.vocabulary = kVocabulary,
          .layers = 2,
          .width = 8,
          .filter = {.positions = 40, .width = 6, .decay_shift = 0.1}};
}

Tensor random_tokens(int64_t batch, int64_t length, uint64_t seed) {
  Random random(seed, 0);
  std::vector<int64_t> ids(static_cast<size_t>(batch * length));
  for (int64_t& id : ids) {
    id = static_cast<int64_t>(random.below(kVocabulary));
  }
  return at::tensor(ids, at::kLong).view({batch, length});
}

// Biases and filters that are not almost nothing, as at the beginning.
void enlarge(const Hyena& model) {
  uint64_t stream = 0;
  for (const tensor::Parameter& parameter : model.parameters()) {
    Random random(3, stream++);
    const bool is_filter = parameter.name.find(".filter.l") != std::string::npos;
    if (!is_filter && !parameter.name.ends_with("bias")) {
      continue;
    }
    const at::NoGradGuard no_grad;
    auto* values = parameter.value.mutable_data_ptr<float>();
    for (int64_t i = 0; i < parameter.value.numel(); ++i) {
      values[i] += static_cast<float>(0.1 * random.normal());
    }
  }
}

void to_double(const Hyena& model) {
  for (const tensor::Parameter& parameter : model.parameters()) {
    parameter.value.set_data(parameter.value.detach().to(at::kDouble));
  }
}

// The model once more, in FP64 and from its definition: norms and GELU by their formulas,
// convolutions by direct sums over taps, no operation of ours.
class Reference {
 public:
  Reference(const Hyena& model) : options_(model.options()) {
    for (const tensor::Parameter& parameter : model.parameters()) {
      parameters_[parameter.name] =
          parameter.value.detach().to(at::kDouble).clone().requires_grad_();
    }
  }

  const Tensor& operator[](const std::string& name) const { return parameters_.at(name); }

  Tensor logits(const Tensor& tokens) const {
    if (options_.complement.empty()) {
      return at::matmul(hidden(tokens), parameters_.at("embedding.weight").t());
    }
    const Tensor complement = at::tensor(options_.complement, at::kLong);
    const Tensor other = complement.index_select(0, tokens.flatten()).view_as(tokens).flip(1);
    const Tensor& table = parameters_.at("embedding.weight");
    const Tensor back = at::matmul(hidden(other), table.t()).flip(1).index_select(2, complement);
    return at::matmul(hidden(tokens), table.t()) + back;
  }

  Tensor loss(const Tensor& tokens, const Tensor& targets) const {
    const Tensor log_p = logits(tokens).log_softmax(-1);
    return -log_p.gather(2, targets.unsqueeze(2)).mean();
  }

 private:
  Tensor linear(const std::string& name, const Tensor& x) const {
    return at::matmul(x, (*this)[name + ".weight"].t()) + (*this)[name + ".bias"];
  }

  Tensor norm(const std::string& name, const Tensor& x) const {
    const Tensor centered = x - x.mean(-1, true);
    const Tensor deviation = (centered.square().mean(-1, true) + 1e-5).sqrt();
    return centered / deviation * (*this)[name + ".weight"] + (*this)[name + ".bias"];
  }

  // out[b][c][t] = sum over s of filter[c][s] x[b][c][t - s], (B, C, T) and (C, taps).
  static Tensor convolve(const Tensor& x, const Tensor& filter) {
    const int64_t length = x.size(2);
    Tensor out = at::zeros_like(x);
    for (int64_t s = 0; s < std::min(length, filter.size(1)); ++s) {
      const Tensor late = x.narrow(2, 0, length - s) * filter.select(1, s).unsqueeze(1);
      out = out + at::cat({at::zeros_like(x.narrow(2, 0, s)), late}, 2);
    }
    return out;
  }

  // (T, D (N - 1))
  Tensor filter(const std::string& name, int64_t length) const {
    const ImplicitFilterOptions& o = options_.filter;
    const auto wide = at::TensorOptions(at::kDouble);
    const Tensor t = at::arange(length, wide).unsqueeze(1);
    const Tensor time = t / static_cast<double>(o.positions - 1);
    const Tensor bands = at::linspace(1e-4, static_cast<double>(o.bands - 1), o.bands, wide);
    const Tensor angle = t * bands * (2 * M_PI / static_cast<double>(o.positions));
    Tensor x = at::cat({time, at::cos(angle), -at::sin(angle)}, 1);
    for (int64_t layer = 0; layer <= o.layers; ++layer) {
      x = at::sin((*this)[name + ".frequency"] *
                  linear(name + ".layers." + std::to_string(layer), x));
    }
    const int64_t channels = options_.width * (options_.order - 1);
    const Tensor rate = at::linspace(std::log(o.decay_target) / o.slow_decay,
                                     std::log(o.decay_target) / o.fast_decay, channels, wide);
    return at::matmul(x, (*this)[name + ".last.weight"].t()) *
           ((time * rate).exp() + o.decay_shift);
  }

  // u (B, (N + 1) D, T) -> (B, D, T)
  Tensor mix(const std::string& name, const Tensor& u) const {
    const int64_t order = options_.order;
    const int64_t width = options_.width;
    // The last tap of a convolution of LibTorch is that of the number itself.
    const Tensor taps = (*this)[name + "short.weight"].squeeze(1).flip(1);
    const Tensor parts = convolve(u, taps) + (*this)[name + "short.bias"].unsqueeze(1);
    const auto part = [&](int64_t i) { return parts.narrow(1, i * width, width); };
    const Tensor filters = filter(name + "filter", u.size(2));
    Tensor v = part(order);
    for (int64_t i = 0; i < order - 1; ++i) {
      std::vector<Tensor> own;
      std::vector<Tensor> bias;
      for (int64_t d = 0; d < width; ++d) {
        own.push_back(filters.select(1, d * (order - 1) + i));
        bias.push_back((*this)[name + "filter.bias"][d * (order - 1) + i]);
      }
      v = v * part(order - 1 - i);
      v = convolve(v, at::stack(own)) + v * at::stack(bias).unsqueeze(1);
    }
    return v * part(0);
  }

  Tensor hidden(const Tensor& tokens) const {
    Tensor x = (*this)["embedding.weight"]
                   .index_select(0, tokens.flatten())
                   .view({tokens.size(0), tokens.size(1), options_.width});
    for (int64_t layer = 0; layer < options_.layers; ++layer) {
      const std::string block = "blocks." + std::to_string(layer) + ".";
      const Tensor u = linear(block + "hyena.in", norm(block + "hyena_norm", x)).transpose(1, 2);
      Tensor y = mix(block + "hyena.", u);
      if (options_.direction == Direction::bidirectional) {
        y = y + mix(block + "hyena.reverse.", u.flip(2)).flip(2);
      }
      x = x + linear(block + "hyena.out", y.transpose(1, 2));
      const Tensor h = linear(block + "mlp.up", norm(block + "mlp_norm", x));
      const Tensor gelu =
          0.5 * h * (1 + at::tanh(std::sqrt(2 / M_PI) * (h + 0.044715 * h * h * h)));
      x = x + linear(block + "mlp.down", gelu);
    }
    return norm("final_norm", x);
  }

  HyenaOptions options_;
  std::map<std::string, Tensor> parameters_;
};

double largest(const Tensor& x) { return x.abs().max().item<double>(); }

// Logits, loss and every gradient, within `error` of the largest number of each.
void expect_reference(const Hyena& model, int64_t length, double error) {
  SCOPED_TRACE(length);
  const Reference reference(model);
  const Tensor tokens = random_tokens(2, length, 3);
  const Tensor targets = random_tokens(2, length, 4);
  const Tensor exact = reference.logits(tokens);
  EXPECT_LE(largest(model.forward(tokens) - exact), error * largest(exact));
  const Tensor expected = reference.loss(tokens, targets);
  expected.backward();
  const Tensor loss = model.loss(tokens, targets);
  loss.backward();
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), error * expected.item<double>());
  for (const tensor::Parameter& parameter : model.parameters()) {
    const Tensor& gradient = reference[parameter.name].grad();
    ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
    EXPECT_LE(largest(parameter.value.grad() - gradient), error * largest(gradient))
        << parameter.name;
    EXPECT_GT(largest(gradient), 0) << parameter.name;
    parameter.value.mutable_grad().reset();
  }
}

// The longest chain of roundings is some 40 operations a block whose sums have up to 40 terms
// (2^-53 each), norms divide by deviations that may be small (tenfold), a sine has its frequency of
// 10 as a factor in each of three layers: 2^-53 * 2 * 40 * 40 * 10 * 1000 at the very most, and far
// less as errors do not line up.
constexpr double kInFp64 = 1e-9;
// The same chain without the worst case: 2^-24 * sqrt(2 * 40 * 40) * 10 is 3e-5; gradients pass
// it twice.
constexpr double kInFp32 = 1e-4;

TEST(Hyena, IsItsDefinitionInFp64) {
  for (const bool fused : {true, false}) {
    for (const int64_t order : {2, 3, 4}) {
      SCOPED_TRACE(order);
      HyenaOptions options = tiny();
      options.order = order;
      options.fused = fused;
      options.short_taps = order + 1;
      const Hyena model(options, 5);
      enlarge(model);
      to_double(model);
      for (const int64_t length : {1, 2, 7, 40}) {
        expect_reference(model, length, kInFp64);
      }
    }
  }
}

TEST(Hyena, IsItsDefinitionInFp32) {
  for (const bool fused : {true, false}) {
    HyenaOptions options = tiny();
    options.fused = fused;
    const Hyena model(options, 5);
    enlarge(model);
    for (const int64_t length : {1, 3, 31, 40}) {
      expect_reference(model, length, kInFp32);
    }
  }
}

TEST(Hyena, InBothDirectionsIsItsDefinition) {
  HyenaOptions options = tiny();
  options.direction = Direction::bidirectional;
  options.order = 3;
  const Hyena model(options, 6);
  enlarge(model);
  expect_reference(model, 33, kInFp32);
  to_double(model);
  expect_reference(model, 33, kInFp64);
  options.complement = {0, 1, 2, 6, 5, 4, 3};
  const Hyena equivariant(options, 6);
  enlarge(equivariant);
  to_double(equivariant);
  expect_reference(equivariant, 33, kInFp64);
}

// HyenaDNA's models. The cards of the port in multimolecule 0.2.2 say 0.45, 1.71, 3.34 and 6.62
// million, with what that one has more: a pooler, D^2 + D, and a frequency of its own, 64, for each
// of two more layers of each block.
TEST(Hyena, PublishedSizesHaveTheirParameters) {
  const std::map<std::string, int64_t> published = {
      {"tiny-1k", 436'096},     {"tiny-1k-d256", 1'641'088}, {"tiny-16k-d128", 436'096},
      {"small-32k", 3'277'568}, {"medium-160k", 6'550'528},  {"medium-450k", 6'550'528},
      {"large-1m", 6'550'528}};
  const std::map<std::string, int64_t> cards = {
      {"tiny-16k-d128", 45}, {"tiny-1k-d256", 171}, {"small-32k", 334}, {"large-1m", 662}};
  ASSERT_EQ(hyena_sizes().size(), published.size());
  for (const std::string& name : hyena_sizes()) {
    HyenaOptions options = hyena_size(name);
    const int64_t positions = std::exchange(options.filter.positions, 64);  // no parameter
    int64_t count = 0;
    for (const tensor::Parameter& parameter : Hyena(options, 0).parameters()) {
      count += parameter.value.numel();
    }
    EXPECT_EQ(count, published.at(name)) << name;
    if (const auto card = cards.find(name); card != cards.end()) {
      const int64_t more = options.width * (options.width + 1) + options.layers * 2 * 64;
      EXPECT_EQ((count + more + 5000) / 10'000, card->second) << name;
    }
    if (name == "large-1m") {
      EXPECT_EQ(positions, 1'000'002);
    }
  }
  EXPECT_EQ(message_of<InvalidArgument>([] { (void)hyena_size("tiny-2k"); }).substr(0, 29),
            "hyena: unknown size \"tiny-2k\"");
}

// An FFT's rounding errors go back to earlier numbers, 5 * 2^-24 of a row's root mean square each
// way (ops/long_convolution.h), here grown by the layers after it; in FP64 2^-29 of that.
TEST(Hyena, CausalLogitsDoNotSeeLaterTokens) {
  for (const bool in_double : {false, true}) {
    const Hyena model(tiny(), 1);
    enlarge(model);
    if (in_double) {
      to_double(model);
    }
    const Tensor tokens = random_tokens(1, 40, 2);
    const Tensor changed = tokens.clone();
    changed[0][30] = (tokens[0][30].item<int64_t>() + 1) % kVocabulary;
    const Tensor before = model.forward(tokens);
    const Tensor difference = (before - model.forward(changed)).abs();
    EXPECT_LE(largest(difference.narrow(1, 0, 30)), in_double ? 1e-12 : 1e-4);
    for (const int64_t later : {30, 31, 39}) {
      EXPECT_GT(largest(difference.narrow(1, later, 1)), 1e-3) << later;
    }
  }
}

TEST(Hyena, BidirectionalLogitsSeeAllTokens) {
  HyenaOptions options = tiny();
  options.direction = Direction::bidirectional;
  const Hyena model(options, 1);
  enlarge(model);
  const Tensor tokens = random_tokens(1, 40, 2);
  const Tensor changed = tokens.clone();
  changed[0][30] = (tokens[0][30].item<int64_t>() + 1) % kVocabulary;
  const Tensor difference = (model.forward(tokens) - model.forward(changed)).abs();
  for (const int64_t position : {0, 29, 30, 39}) {
    EXPECT_GT(largest(difference.narrow(1, position, 1)), 1e-3) << position;
  }
}

// A filter of more positions is another function of time: the sequence may be shorter.
TEST(Hyena, ShortSequencesTakeTheFirstTaps) {
  const Hyena model(tiny(), 1);
  enlarge(model);
  const Tensor all = model.filters(1, 40);
  EXPECT_EQ(all.sizes(), (std::vector<int64_t>{40, 8}));
  // Products of other shapes may sum in another order: sums of 6 numbers, thrice.
  EXPECT_LE(largest(model.filters(1, 9) - all.narrow(0, 0, 9)), 0x1p-20);
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)model.forward(random_tokens(1, 41, 2)); }),
            "hyena: a sequence of 41 tokens, and filters of 40 positions; make the filters for "
            "longer sequences, or cut these");
}

TEST(Hyena, RecomputationChangesNoBit) {
  const Tensor tokens = random_tokens(2, 33, 3);
  const Tensor targets = random_tokens(2, 33, 4);
  for (const Direction direction : {Direction::causal, Direction::bidirectional}) {
    std::vector<Tensor> expected;
    for (const Recompute recompute :
         {Recompute::none, Recompute::elementwise, Recompute::block, Recompute::full}) {
      HyenaOptions options = tiny();
      options.layers = 3;
      options.order = 3;
      options.dropout = 0.2;
      options.direction = direction;
      options.recompute = recompute;
      at::manual_seed(7);
      std::vector<Tensor> gradients;
      Tensor loss;
      tensor::ParameterList parameters;
      {
        const Hyena model(options, 5);
        enlarge(model);
        parameters = model.parameters();
        loss = model.loss(tokens, targets);
      }
      loss.backward();  // without the model
      for (const tensor::Parameter& parameter : parameters) {
        gradients.push_back(parameter.value.grad());
      }
      if (recompute == Recompute::none) {
        expected = gradients;
      }
      for (size_t i = 0; i < gradients.size(); ++i) {
        EXPECT_TRUE(at::equal(gradients[i], expected[i]))
            << parameters[i].name << " at level " << static_cast<int>(recompute);
      }
    }
  }
}

TEST(Hyena, ScopesAreThoseOfTheForwardPass) {
  for (const Direction direction : {Direction::causal, Direction::bidirectional}) {
    static std::set<std::string>* seen = nullptr;
    std::set<std::string> scopes;
    seen = &scopes;
    const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
        [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
          seen->insert(tensor::current_scope());
          return nullptr;
        }));
    HyenaOptions options = tiny();
    options.direction = direction;
    const Hyena model(options, 1);
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
}

TEST(Hyena, SeedDecidesTheParameters) {
  const auto a = Hyena(tiny(), 5).parameters();
  const auto b = Hyena(tiny(), 5).parameters();
  const auto c = Hyena(tiny(), 6).parameters();
  ASSERT_EQ(a.size(), 1 + 2 * 23 + 2U);
  std::set<std::string> names;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_TRUE(names.insert(a[i].name).second) << a[i].name;
    EXPECT_TRUE(at::equal(a[i].value, b[i].value)) << a[i].name;
  }
  EXPECT_FALSE(at::equal(a[0].value, c[0].value));
}

TEST(Hyena, DropoutIsOfTrainingAlone) {
  const Tensor tokens = random_tokens(2, 6, 3);
  HyenaOptions options = tiny();
  const Tensor without = Hyena(options, 1).forward(tokens);
  options.dropout = 0.25;
  const Hyena model(options, 1);
  EXPECT_TRUE(at::equal(model.forward(tokens, Mode::evaluation), without));
  EXPECT_FALSE(at::equal(model.forward(tokens), without));
}

TEST(Hyena, RefusesImpossibleValuesByName) {
  const auto message = [](const HyenaOptions& options) {
    return message_of<InvalidArgument>([&] { Hyena(options, 0); });
  };
  HyenaOptions options = tiny();
  options.order = 1;
  EXPECT_EQ(message(options), "hyena: order is 1; it must be at least 2, for one long convolution");
  options = tiny();
  options.short_taps = 0;
  EXPECT_EQ(message(options), "hyena: short_taps is 0; it must be positive");
  options = tiny();
  options.complement = {0, 1, 2, 6, 5, 4, 3};
  EXPECT_EQ(message(options),
            "hyena: a causal model cannot be reverse-complement equivariant, for it would see on "
            "the other strand what it is to predict; make it bidirectional");
  options.direction = Direction::bidirectional;
  options.complement = {0, 1, 2, 6, 5, 4, 4};
  EXPECT_EQ(message(options),
            "hyena: complement has 7 tokens, of a vocabulary of 7; give for each token the one "
            "whose complement it is in turn");
  EXPECT_EQ(message_of<InvalidArgument>(
                [] { (void)Hyena(tiny(), 0).forward(at::full({3}, 1, at::kLong)); }),
            "hyena: tokens have shape [3] and dtype Long; pass (batch, length) int64");
}

}  // namespace
}  // namespace mantissa::models
