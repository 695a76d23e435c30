#include "mantissa/tensor/recompute.h"

#include <stdexcept>
#include <string>
#include <thread>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/tensor/generator_state.h"
#include "mantissa/tensor/memory.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::tensor {
namespace {

void seed(uint64_t number) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(number);
}

Tensors plain(const Tensors& inputs, const TensorFunction& function) { return function(inputs); }

using Call = Tensors (*)(const Tensors&, const TensorFunction&);
constexpr Call kCalls[] = {&plain, static_cast<Call>(&recompute)};

at::Tensor parameter(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); }

// Expects the same numbers of `run`, which is given a plain call and one that is computed again.
void expect_equal(const std::function<Tensors(Call)>& run) {
  Tensors results[2];
  at::Tensor generators[2];
  for (int i = 0; i < 2; ++i) {
    seed(3);
    results[i] = run(kCalls[i]);
    generators[i] = cpu_generator_state();
  }
  EXPECT_TRUE(at::equal(generators[0], generators[1]));
  ASSERT_EQ(results[0].size(), results[1].size());
  for (size_t i = 0; i < results[0].size(); ++i) {
    ASSERT_EQ(results[0][i].defined(), results[1][i].defined()) << i;
    if (results[0][i].defined()) {
      EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << i;
    }
  }
}

// A block with two inputs and two outputs, a lookup, dropout, and parameters that it captures.
struct Block {
  at::Tensor table = parameter({5, 4});
  at::Tensor up = parameter({8, 4});
  at::Tensor down = parameter({4, 8});
  at::Tensor unused = parameter({3});

  TensorFunction function() const {
    return [block = *this](const Tensors& in) -> Tensors {
      const at::Tensor x = in[0].add(at::embedding(block.table, in[1]));
      const at::Tensor hidden = at::dropout(at::gelu(at::linear(x, block.up)), 0.5, /*train=*/true);
      return {x.add(at::linear(hidden, block.down)), hidden.exp(), x.detach(), in[1].add(1)};
    };
  }
  Tensors gradients() const { return {table.grad(), up.grad(), down.grad(), unused.grad()}; }
};

const at::Tensor kIds = at::arange(6).remainder(5);

TEST(Recompute, GivesTheGradientsAndRandomNumbersOfAPlainCall) {
  expect_equal([](Call call) {
    const Block block;
    const at::Tensor x = parameter({6, 4});
    const Tensors out = call({x.mul(2), kIds}, block.function());
    const at::Tensor noise = at::randn({6, 4});  // drawn after the block, before its second call
    out[0].mul(noise).sum().add(out[1].sum()).backward();
    Tensors results = block.gradients();
    for (const at::Tensor& more : {x.grad(), out[0], out[2], out[3], at::randn({2})}) {
      results.push_back(more);
    }
    return results;
  });
}

TEST(Recompute, AnOutputThatIsNotUsedAndInputsWithoutGradients) {
  expect_equal([](Call call) {
    const Block block;
    const Tensors out = call({at::randn({6, 4}), kIds}, block.function());
    out[1].sum().backward();
    return block.gradients();
  });
}

// Three terms of the gradient of x: two within the function and one outside; FP32 sums of them
// depend on the order.
TEST(Recompute, GradientsAddUpInTheOrderOfAPlainCall) {
  for (uint64_t number = 0; number < 20; ++number) {
    expect_equal([&](Call call) {
      seed(number);
      const at::Tensor w = parameter({4, 4});
      const at::Tensor x = parameter({16, 4});
      const at::Tensor y = x.mul(3);
      const at::Tensor before = at::mm(y, w);
      const Tensors out = call({y}, [w](const Tensors& in) {
        return Tensors{at::mm(at::mm(in[0], w).exp().mul(in[0]), w)};
      });
      at::mm(out[0].add(before).add(y), w).sum().backward();
      return Tensors{x.grad(), w.grad()};
    });
  }
}

TEST(Recompute, GradientsOfSeveralMicrobatchesAccumulate) {
  expect_equal([](Call call) {
    const Block block;
    for (int i = 0; i < 3; ++i) {
      call({at::randn({6, 4}), kIds}, block.function())[0].sum().mul(1024).backward();
    }
    return block.gradients();
  });
}

TEST(Recompute, CallsNest) {
  expect_equal([](Call call) {
    const Block first;
    const Block second;
    const at::Tensor x = parameter({6, 4});
    const auto both = [=, f = first.function(), s = second.function()](const Tensors& in) {
      const Tensors middle = call(in, f);
      return Tensors{call({middle[0], in[1]}, s)[0], middle[1]};
    };
    const Tensors out = call({x, kIds}, both);
    out[0].sum().add(out[1].sum()).backward();
    Tensors results = first.gradients();
    for (const at::Tensor& gradient : second.gradients()) {
      results.push_back(gradient);
    }
    results.push_back(x.grad());
    return results;
  });
}

TEST(Recompute, RetainGraphAndSecondDerivatives) {
  expect_equal([](Call call) {
    const at::Tensor w = parameter({4, 4});
    const at::Tensor x = parameter({6, 4});
    const at::Tensor loss =
        call({x}, [w](const Tensors& in) { return Tensors{at::gelu(at::mm(in[0], w)).exp()}; })[0]
            .sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward({}, /*retain_graph=*/true);
    const at::Tensor of_x =
        torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    of_x.square().sum().backward();
    return Tensors{x.grad(), w.grad(), of_x};
  });
}

TEST(Recompute, ASecondBackwardWithoutRetainGraphIsLibTorchsError) {
  const at::Tensor x = parameter({3});
  const at::Tensor y = recompute(x, [](const at::Tensor& in) { return in.exp().exp(); });
  y.sum().backward();
  EXPECT_THAT(message_of<c10::Error>([&] { y.sum().backward(); }),
              ::testing::HasSubstr("backward through the graph a second time"));
}

TEST(Recompute, KeepsTheInputsAloneUntilBackward) {
  memory::install_counting_allocator();
  const at::Tensor w = parameter({64, 64});
  const at::Tensor x = parameter({256, 64});
  const auto kept = [&](Call call) {
    const int64_t before = memory::live_bytes().total();
    const at::Tensor y = x.mul(2);
    const at::Tensor loss = call({y},
                                 [w](const Tensors& in) {
                                   return Tensors{at::gelu(at::mm(at::gelu(at::mm(in[0], w)), w))};
                                 })[0]
                                .sum();
    return memory::live_bytes().total() - before;
  };
  const auto bytes = static_cast<int64_t>(x.nbytes());
  EXPECT_GE(kept(&plain), 4 * bytes);
  EXPECT_LE(kept(&recompute), bytes + 512);  // the sum and a scalar of mul
  const int64_t before = memory::live_bytes().total();
  recompute({x}, [w](const Tensors& in) { return Tensors{at::gelu(at::mm(in[0], w))}; })[0]
      .sum()
      .backward();
  x.mutable_grad() = at::Tensor();
  w.mutable_grad() = at::Tensor();
  EXPECT_EQ(memory::live_bytes().total(), before);
}

TEST(Recompute, DerivedInputsAreKeptAsTheirSources) {
  memory::install_counting_allocator();
  const at::Tensor w = parameter({64, 64});
  const at::Tensor x = parameter({256, 64});
  const TensorFunction normalize = [](const Tensors& in) {
    return Tensors{at::layer_norm(in[0], {64})};
  };
  const TensorFunction product = [w](const Tensors& in) { return Tensors{at::mm(in[0], w)}; };
  std::vector<int64_t> kept;
  expect_equal([&](Call call) {
    w.mutable_grad() = at::Tensor();
    x.mutable_grad() = at::Tensor();
    const int64_t before = memory::live_bytes().total();
    const auto loss_of = [&](const Tensors& normalized) {
      return (call == kCalls[0] ? product(normalized)
                                : recompute(normalized, product, {x}, normalize))[0]
          .sum();
    };
    const at::Tensor loss = loss_of(normalize({x}));
    kept.push_back(memory::live_bytes().total() - before);
    loss.backward();
    return Tensors{w.grad(), x.grad()};
  });
  EXPECT_EQ(kept[0] - kept[1], static_cast<int64_t>(x.nbytes()));
}

TEST(Recompute, TheSecondCallEndsAtTheLastTensorThatIsNeeded) {
  int begun = 0;
  int ended = 0;
  const at::Tensor w = parameter({4, 4});
  const at::Tensor y = recompute(parameter({2, 4}), [&](const at::Tensor& in) {
    ++begun;
    at::Tensor out = at::mm(in.exp(), w);  // saves what it multiplies before it does
    ++ended;
    return out;
  });
  y.sum().backward();
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(ended, 1);
}

TEST(Recompute, WithoutGradModeOrSavedTensorsItIsAPlainCall) {
  int calls = 0;
  const auto count = [&](const at::Tensor& in) {
    ++calls;
    return in.add(1);
  };
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(recompute(parameter({2}), count).requires_grad());
  }
  recompute(parameter({2}), count).sum().backward();
  EXPECT_EQ(calls, 2);
}

TEST(Recompute, TheSecondCallHasTheScopeOfTheFirst) {
  std::vector<std::string> seen;
  at::Tensor y;
  {
    const Scope scope("blocks.1");
    y = recompute(parameter({2}), [&](const at::Tensor& in) {
      const Scope inner("mlp");
      seen.push_back(current_scope());
      return in.exp();
    });
  }
  const Scope elsewhere("elsewhere");
  y.sum().backward();
  EXPECT_EQ(seen, std::vector<std::string>({"blocks.1.mlp", "blocks.1.mlp"}));
  EXPECT_EQ(current_scope(), "elsewhere");
}

TEST(Recompute, BackwardMayRunInAnotherThread) {
  expect_equal([](Call call) {
    const Block block;
    const at::Tensor loss = call({at::randn({6, 4}), kIds}, block.function())[0].sum();
    std::thread([&] { loss.backward(); }).join();
    return block.gradients();
  });
}

TEST(Recompute, AnExceptionInTheSecondCallLeavesAllAsItWas) {
  bool fails = false;
  const at::Tensor x = parameter({8});
  const at::Tensor y = recompute(x, [&](const at::Tensor& in) {
    const Scope scope("within");
    const at::Tensor out = at::dropout(in.exp(), 0.5, true);
    if (fails) {
      throw std::runtime_error("failed");
    }
    return out.exp();
  });
  const at::Tensor generator = cpu_generator_state();
  fails = true;
  EXPECT_EQ(message_of<std::runtime_error>([&] { y.sum().backward({}, true); }), "failed");
  EXPECT_TRUE(at::equal(cpu_generator_state(), generator));
  EXPECT_EQ(current_scope(), "");
  const at::Tensor z = x.exp();  // saved as it is
  z.sum().backward();
  fails = false;
  y.sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(Recompute, AnInputChangedByTheFunctionIsAnError) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
              recompute(at::ones({2, 3}).requires_grad_().mul(2),
                        [](const at::Tensor& in) { return in.mul_(2).exp(); });
            }),
            "recompute: input 0 of shape [2, 3] was changed in place by the function, which "
            "backward calls again; change a clone of it");
}

TEST(Recompute, AnInputChangedSinceIsLibTorchsError) {
  const at::Tensor x = parameter({3}).mul(2);
  const at::Tensor y = recompute(x, [](const at::Tensor& in) { return in.exp(); });
  x.detach().mul_(2);
  EXPECT_THAT(message_of<c10::Error>([&] { y.sum().backward(); }),
              ::testing::HasSubstr("modified by an inplace operation"));
}

TEST(Recompute, AParameterChangedSinceIsAnError) {
  const at::Tensor w = parameter({4, 4});
  const at::Tensor y =
      recompute(parameter({2, 4}), [w](const at::Tensor& in) { return at::mm(in.exp(), w); });
  {
    const at::NoGradGuard no_grad;
    w.add_(1);
  }
  EXPECT_EQ(message_of<Error>([&] { y.sum().backward(); }),
            "recompute: a parameter of shape [4, 4] has changed since the forward pass, which "
            "backward computes again; change parameters after backward");
}

TEST(Recompute, AParameterBehindWhatIsSavedChangedSinceIsAnError) {
  const at::Tensor w = parameter({4, 4});
  const at::Tensor bias = parameter({4});
  const std::vector<std::pair<at::Tensor, std::function<at::Tensor(const at::Tensor&)>>> cases = {
      {w, [w](const at::Tensor& in) { return at::linear(in.exp(), w); }},
      {w, [w](const at::Tensor& in) { return at::mm(in, w.to(at::kBFloat16).to(at::kFloat)); }},
      {bias, [bias](const at::Tensor& in) { return at::sin(in.add(bias)); }}};
  for (const auto& [changed, function] : cases) {
    const at::Tensor y = recompute(parameter({2, 4}), function);
    {
      const at::NoGradGuard no_grad;
      changed.add_(1);
    }
    EXPECT_THAT(message_of<Error>([&] { y.sum().backward(); }),
                testing::HasSubstr("has changed since the forward pass"));
  }
}

TEST(Recompute, DeriveMustGiveTheInputs) {
  const at::Tensor x = parameter({2});
  const at::Tensor y = recompute(
      {x}, [](const Tensors& in) { return Tensors{in[0].exp()}; }, {x},
      [](const Tensors&) { return Tensors(); })[0];
  EXPECT_EQ(message_of<InvalidArgument>([&] { y.sum().backward(); }),
            "recompute: derive gave 0 tensors, and the function takes 1; it must give the inputs");
}

TEST(Recompute, ASavedTensorChangedByTheFunctionIsAnError) {
  const at::Tensor y = recompute(parameter({3}), [](const at::Tensor& in) {
    const at::Tensor exponential = in.exp();
    const at::Tensor once_more = exponential.mul(2);
    exponential.mul_(2);
    return once_more.exp();
  });
  EXPECT_EQ(message_of<InvalidArgument>([&] { y.sum().backward(); }),
            "recompute: a tensor of shape [3] that backward needs was changed in place by the "
            "function; change a clone of it");
}

TEST(Recompute, AFunctionThatComputesSomethingElseIsAnError) {
  int calls = 0;
  const at::Tensor fewer = recompute(parameter({3}), [&](const at::Tensor& in) {
    return calls++ == 0 ? in.exp().exp() : in.exp();
  });
  EXPECT_EQ(message_of<Error>([&] { fewer.sum().backward(); }),
            "recompute: 1 tensors were saved in the recomputation and 2 before; the function must "
            "compute the same when backward calls it again");
  calls = 0;
  const at::Tensor other = recompute(parameter({3}), [&](const at::Tensor& in) {
    return (calls++ == 0 ? in : in.narrow(0, 0, 2)).exp();
  });
  EXPECT_EQ(message_of<Error>([&] { other.sum().backward(); }),
            "recompute: saved tensor 0 is Float [2] in the recomputation and was Float [3]; the "
            "function must compute the same when backward calls it again");
}

TEST(Recompute, BackwardWithinTheFunctionIsAnError) {
  EXPECT_EQ(message_of<Unsupported>([] {
              recompute(parameter({3}), [](const at::Tensor& in) {
                in.exp().sum().backward();
                return in;
              });
            }),
            "recompute: backward is called within the function, where what it needs is dropped; "
            "call it after recompute()");
}

}  // namespace
}  // namespace mantissa::tensor
