#include "mantissa/amp/emulation.h"

#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/policy.h"
#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/numerics/boundary_values.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::amp {
namespace {

using numerics::Format;

constexpr std::array kEmulated = {Format::bf16, Format::fp16, Format::fp8_e4m3, Format::fp8_e5m2};

// Integers whose products and sums FP32 and, but for their last rounding, FP16 hold: sums are
// exact in any order.
at::Tensor integers(int64_t rows, int64_t columns) {
  return at::randint(-8, 9, {rows, columns}, at::kLong).to(at::kFloat);
}

TEST(RoundTo, IsTheRoundingOfNumerics) {
  for (const Format format : kEmulated) {
    std::vector<float> values = numerics::boundary_values(format);
    const auto size = static_cast<int64_t>(values.size());
    const at::Tensor rounded = round_to(at::from_blob(values.data(), {size}, at::kFloat), format);
    for (int64_t i = 0; i < size; ++i) {
      const float expected = numerics::round_to(format, values[i]);
      ASSERT_EQ(std::memcmp(rounded.const_data_ptr<float>() + i, &expected, sizeof(float)), 0)
          << values[i] << " in " << numerics::to_string(format);
    }
  }
}

TEST(RoundTo, KeepsTheInputAndRoundsOtherLayoutsAndDtypes) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({5, 7});
  const at::Tensor before = x.clone();
  EXPECT_TRUE(at::equal(round_to(x.t(), Format::fp16), x.to(at::kHalf).to(at::kFloat).t()));
  EXPECT_TRUE(at::equal(round_to(x[0].expand({3, 7}), Format::fp16),
                        x[0].to(at::kHalf).to(at::kFloat).expand({3, 7})));
  EXPECT_TRUE(
      at::equal(round_to(x.to(at::kBFloat16), Format::bf16), x.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_TRUE(at::equal(x, before));
}

TEST(RoundTo, RoundsTheGradientToo) {
  const at::Tensor x = at::full({1}, 1.0F).requires_grad_();
  round_to(x, Format::bf16).mul(1.001).sum().backward();
  EXPECT_EQ(x.grad().item<float>(), numerics::round_to(Format::bf16, 1.001F));
}

TEST(Emulation, RoundsInputsAndResultsOfWhatAPolicyLowers) {
  at::manual_seed(2);
  const at::Tensor a = at::randn({4, 6});
  const at::Tensor b = at::randn({6, 3});
  for (const Format format : kEmulated) {
    const Emulation emulation(format);
    const Autocast region(parse_policy("torch-fixed compute=bf16"));
    const at::Tensor y = at::mm(a, b);
    const Autocast none = Autocast::disabled();
    EXPECT_EQ(y.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(y, round_to(at::mm(round_to(a, format), round_to(b, format)), format)))
        << numerics::to_string(format);
  }
}

// Of integers every sum is exact, so an order of sums is no excuse.
TEST(Emulation, IsTheFormatsOwnArithmeticForwardAndBackward) {
  at::manual_seed(3);
  for (const char* name : {"fp16", "bf16"}) {
    const Policy policy = parse_policy(std::string("torch-fixed compute=") + name);
    const at::Tensor a = integers(9, 30).requires_grad_();
    const at::Tensor w = integers(5, 30).requires_grad_();
    const at::Tensor bias = integers(1, 5)[0].requires_grad_();
    const at::Tensor seed = integers(9, 5);
    const auto run = [&](bool emulates) {
      std::vector<at::Tensor> results;
      {
        std::optional<Emulation> emulation;
        if (emulates) {
          emulation.emplace(numerics::parse_format(name));
        }
        const Autocast region(policy);
        results.push_back(at::linear(a, w, bias));
      }
      results[0].to(at::kFloat).mul(seed).sum().backward();
      results[0] = results[0].to(at::kFloat);
      for (const at::Tensor& leaf : {a, w, bias}) {
        results.push_back(leaf.grad());
        leaf.mutable_grad() = at::Tensor();
      }
      return results;
    };
    const auto real = run(false);
    const auto emulated = run(true);
    for (size_t i = 0; i < real.size(); ++i) {
      EXPECT_TRUE(at::equal(real[i], emulated[i])) << name << " " << i;
    }
  }
}

TEST(Emulation, OverflowsWhereTheFormatDoes) {
  const at::Tensor a = at::full({1, 4}, 200.0F);
  const Autocast region(parse_policy("torch-fixed compute=bf16"));
  const auto product = [&](Format format) {
    const Emulation emulation(format);
    return at::mm(a, a.t()).item<float>();
  };
  EXPECT_EQ(product(Format::bf16), 159744) << "160000 rounded";
  EXPECT_EQ(product(Format::fp16), INFINITY);
  EXPECT_EQ(product(Format::fp8_e5m2), INFINITY);
  EXPECT_TRUE(std::isnan(product(Format::fp8_e4m3)));
}

TEST(Emulation, LeavesAloneWhatThePolicyKeepsInFp32) {
  at::manual_seed(4);
  const at::Tensor a = at::randn({4, 4});
  const at::Tensor plain = at::mm(a, a);
  const Emulation emulation(Format::fp8_e4m3);
  const Autocast region(parse_policy("torch-fixed compute=fp16 scope:head=fp32 exp=fp32"));
  {
    const tensor::Scope scope("head");
    EXPECT_TRUE(at::equal(at::mm(a, a), plain));
  }
  EXPECT_TRUE(at::equal(a.exp(), [&] {
    const Autocast none = Autocast::disabled();
    return a.exp();
  }()));
  EXPECT_FALSE(at::equal(at::mm(a, a), plain));
}

TEST(Emulation, RoundsResultsThatAPolicyLowers) {
  at::manual_seed(5);
  const at::Tensor a = at::randn({4, 9});
  const Emulation emulation(Format::fp8_e5m2);
  const Autocast region(parse_policy("torch-fixed compute=fp16 softmax=lower_output"));
  const at::Tensor y = at::softmax(a, 1);
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(y, round_to(y, Format::fp8_e5m2)));
}

TEST(Emulation, EndsAndIsOfItsThread) {
  EXPECT_FALSE(emulated_format().has_value());
  {
    const Emulation outer(Format::fp16);
    {
      const Emulation inner(Format::fp8_e4m3);
      EXPECT_EQ(emulated_format(), Format::fp8_e4m3);
    }
    EXPECT_EQ(emulated_format(), Format::fp16);
    std::thread([] { EXPECT_FALSE(emulated_format().has_value()); }).join();
  }
  EXPECT_FALSE(emulated_format().has_value());
}

TEST(Emulation, RefusesFormatsThatAreTheArithmeticItself) {
  EXPECT_EQ(message_of<InvalidArgument>([] { const Emulation emulation(Format::tf32); }),
            "emulation: format tf32 is that of the arithmetic; use bf16, fp16, fp8_e4m3 or "
            "fp8_e5m2");
}

}  // namespace
}  // namespace mantissa::amp
