#include "mantissa/amp/autocast.h"

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/fft_fft.h>
#include <ATen/ops/fft_hfft.h>
#include <ATen/ops/fft_irfft.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/fft_rfft2.h>
#include <ATen/ops/full.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/istft.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/masked_scatter.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/stft.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "mantissa/amp/at_autocast_testing.h"
#include "mantissa/base/error.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::amp {
namespace {

at::Tensor bf16(at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); }

// An operation of a user's own, with every kind of argument that holds tensors.
std::string dtypes_seen;

at::Tensor users_operation(const at::Tensor& x, const std::optional<at::Tensor>& bias,
                           at::TensorList list,
                           const c10::List<std::optional<at::Tensor>>& optionals) {
  dtypes_seen = concat(x.scalar_type(), " ", bias ? c10::toString(bias->scalar_type()) : "none",
                       " ", list[0].scalar_type(), " ", optionals.get(1)->scalar_type(),
                       optionals.get(0).has_value() ? "" : " none");
  return x;
}

TORCH_LIBRARY(mantissa_amp_test, m) {
  m.def("op(Tensor x, Tensor? bias, Tensor[] list, Tensor?[] optionals) -> Tensor",
        users_operation);
}

std::string dtypes_of_users_operation(const std::string& policy) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mantissa_amp_test::op", "")
                                    .typed<decltype(users_operation)>();
  const Autocast region(find_policy(policy));
  const at::Tensor x = at::ones({2});
  operation.call(x.to(at::kBFloat16), x, {x.to(at::kBFloat16)},
                 c10::List<std::optional<at::Tensor>>({std::nullopt, x}));
  return dtypes_seen;
}

at::ScalarType product_dtype() { return at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type(); }

// A region on the heap could end after one that began later.
template <typename T>
concept HasNew = requires {
  new T(find_policy("torch"));
};
static_assert(!HasNew<Autocast>);

TEST(Autocast, CastsListedOperationsInsideOnly) {
  EXPECT_EQ(product_dtype(), at::kFloat);
  {
    const Autocast region(find_policy("torch"));
    EXPECT_EQ(product_dtype(), at::kBFloat16);
  }
  EXPECT_EQ(product_dtype(), at::kFloat);
}

TEST(Autocast, ComputeFormatIsThatOfThePolicy) {
  const std::vector<std::pair<std::string, at::ScalarType>> expected = {
      {"torch compute=fp16", at::kHalf},
      {"torch compute=tf32", at::kFloat},
      {"torch compute=fp32", at::kFloat},
      {"fp32", at::kFloat}};
  for (const auto& [policy, dtype] : expected) {
    const Autocast region(find_policy(policy));
    EXPECT_EQ(product_dtype(), dtype) << policy;
  }
  const Autocast region(find_policy("torch compute=fp32"));
  EXPECT_EQ(at::mm(bf16({2, 2}), bf16({2, 2})).scalar_type(), at::kFloat);
}

TEST(Autocast, RegionsNestAndTheInnermostRules) {
  const Autocast outer(find_policy("torch"));
  {
    const Autocast inner(find_policy("torch compute=fp16"));
    EXPECT_EQ(product_dtype(), at::kHalf);
    {
      const auto full = Autocast::disabled();
      EXPECT_EQ(product_dtype(), at::kFloat);
      EXPECT_EQ(active_policy(), nullptr);
      const Autocast innermost(find_policy("torch"));
      EXPECT_EQ(product_dtype(), at::kBFloat16);
    }
    EXPECT_EQ(product_dtype(), at::kHalf);
  }
  EXPECT_EQ(product_dtype(), at::kBFloat16);
  EXPECT_EQ(*active_policy(), find_policy("torch"));
}

TEST(Autocast, AnExceptionLeavesTheRegion) {
  try {
    const Autocast region(find_policy("torch"));
    at::mm(at::ones({2, 2}), at::ones({3, 3}));
    FAIL() << "expected an error of LibTorch";
  } catch (const c10::Error&) {
  }
  EXPECT_EQ(product_dtype(), at::kFloat);
  EXPECT_EQ(active_policy(), nullptr);
}

TEST(Autocast, RefusesToRunInsideAtAutocast) {
  const AtAutocast theirs;
  try {
    const Autocast region(find_policy("torch"));
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "autocast: at::autocast is on in this thread; leave its region first");
  }
}

TEST(Autocast, Fp32RuleComputesInFp32) {
  const Autocast region(find_policy("torch"));
  const at::Tensor x = bf16({4});
  EXPECT_TRUE(at::equal(at::exp(x), at::exp(x.to(at::kFloat))));
  EXPECT_EQ(at::exp(x).scalar_type(), at::kFloat);
}

TEST(Autocast, Fp32OutputSetsADtypeThatTheCallerLeftOpen) {
  const Autocast region(find_policy("torch"));
  const at::Tensor x = bf16({3, 4});
  EXPECT_EQ(at::softmax(x, 1).scalar_type(), at::kFloat);
  EXPECT_EQ(at::softmax(x, 1, at::kDouble).scalar_type(), at::kDouble);
  EXPECT_EQ(at::sum(x, {1}).scalar_type(), at::kFloat);
  EXPECT_EQ(at::cumsum(at::ones({3}, at::kLong), 0).scalar_type(), at::kLong);
  EXPECT_EQ(at::sum(x.to(at::kDouble)).scalar_type(), at::kDouble);
}

TEST(Autocast, Fp32OutputTakesTheOverloadWithADtypeWhereTheListedOneHasNone) {
  const at::Tensor x = bf16({3, 4});
  const at::Tensor all = at::norm(x, 2, at::kFloat);
  const at::Tensor rows = at::norm(x, 2, {1}, false, at::kFloat);
  const Autocast region(find_policy("torch"));
  EXPECT_TRUE(at::equal(at::norm(x, 2), all));
  EXPECT_TRUE(at::equal(at::norm(x, 2, {1}), rows));
  EXPECT_EQ(at::norm(x.to(at::kDouble), 2).scalar_type(), at::kDouble);
}

TEST(Autocast, LowerOutputFillsAnOpenDtype) {
  const Autocast region(find_policy("torch sum=lower_output"));
  const at::Tensor x = at::ones({3, 4});
  EXPECT_EQ(at::sum(x, {1}).scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::sum(x, {1}, false, at::kFloat).scalar_type(), at::kFloat);
  EXPECT_EQ(at::sum(x.to(at::kDouble), {1}).scalar_type(), at::kDouble);
  EXPECT_EQ(at::sum(at::ones({3}, at::kLong), {0}).scalar_type(), at::kLong);
}

TEST(Autocast, WidestRuleLiftsOutOfPlaceScatterAndIndexing) {
  const Autocast region(find_policy("torch"));
  const at::Tensor index = at::zeros({2, 2}, at::kLong);
  EXPECT_EQ(at::scatter_add(at::zeros({2, 2}), 0, index, bf16({2, 2})).scalar_type(), at::kFloat);
  const at::Tensor mask = at::tensor({1, 0, 1, 0}).to(at::kBool);
  const c10::List<std::optional<at::Tensor>> indices({mask});
  EXPECT_EQ(at::index_put(at::zeros({4, 3}), indices, bf16({2, 3})).scalar_type(), at::kFloat);
  EXPECT_EQ(at::index_put(bf16({4, 3}), indices, bf16({2, 3})).scalar_type(), at::kBFloat16);
}

TEST(Autocast, WidestRuleCanBeGivenToAnyOperation) {
  const Autocast region(find_policy("torch index_add=widest masked_scatter=widest"));
  const at::Tensor index = at::tensor({0, 1});
  EXPECT_EQ(at::index_add(at::zeros({2, 2}), 0, index, bf16({2, 2})).scalar_type(), at::kFloat);
  const at::Tensor mask = at::ones({2, 2}, at::kBool);
  EXPECT_EQ(at::masked_scatter(at::zeros({2, 2}), mask, bf16({2, 2})).scalar_type(), at::kFloat);
}

// at::autocast throws, and so does the exact policy.
TEST(Autocast, WidestRuleTakesA16BitDtypeOtherThanThatOfThePolicyWithForeignWiden) {
  const at::Tensor half = at::ones({2}, at::kHalf);
  {
    const Autocast exact(find_policy("torch-cpu"));
    EXPECT_THROW((void)at::cat({half, half}), InvalidArgument);
  }
  const Autocast region(find_policy("torch-cpu foreign=widen"));
  EXPECT_EQ(at::cat({half, half}).scalar_type(), at::kHalf);
  EXPECT_EQ(at::cat({half, bf16({2})}).scalar_type(), at::kFloat);
}

TEST(Autocast, ForeignWidenHoldsForEveryOperationOfRuleWidest) {
  const at::Tensor index = at::tensor({0, 1}).to(at::kLong);
  const c10::List<std::optional<at::Tensor>> indices({index});
  using Call = std::function<at::Tensor(const at::Tensor& a, const at::Tensor& b)>;
  struct Case {
    const char* name;
    const char* base;
    Call call;
  };
  const std::vector<Case> cases = {
      {"cat", "torch-cpu",
       [](const auto& a, const auto& b) {
         return at::cat({a, b});
       }},
      {"stack", "torch-cpu",
       [](const auto& a, const auto& b) {
         return at::stack({a, b});
       }},
      {"index_copy", "torch-cpu",
       [&](const auto& a, const auto& b) { return at::index_copy(a, 0, index, b); }},
      {"addcmul", "torch", [](const auto& a, const auto& b) { return at::addcmul(a, b, b); }},
      {"scatter_add", "torch",
       [&](const auto& a, const auto& b) { return at::scatter_add(a, 0, index, b); }},
      {"index_put", "torch",
       [&](const auto& a, const auto& b) { return at::index_put(a, indices, b); }}};
  for (const auto& [compute, foreign] :
       {std::pair{"bf16", at::kHalf}, std::pair{"fp16", at::kBFloat16}}) {
    for (const Case& each : cases) {
      SCOPED_TRACE(concat(each.name, " in ", compute));
      const at::Tensor a = at::ones({2}, foreign);
      const at::Tensor own = at::ones({2}, foreign == at::kHalf ? at::kBFloat16 : at::kHalf);
      {
        const Autocast exact(find_policy(concat(each.base, " compute=", compute)));
        EXPECT_THROW((void)each.call(a, a), InvalidArgument);
      }
      const Autocast region(find_policy(concat(each.base, " compute=", compute, " foreign=widen")));
      EXPECT_EQ(each.call(a, a).scalar_type(), foreign);
      EXPECT_EQ(each.call(a, own).scalar_type(), at::kFloat);
      EXPECT_EQ(each.call(own, a).scalar_type(), at::kFloat);
      EXPECT_EQ(each.call(a, own.to(at::kFloat)).scalar_type(), at::kFloat);
    }
  }
}

// The rule is of the policy, not of the device, the dtype or the shape.
TEST(Autocast, BinaryCrossEntropyHasOneRuleWhateverArrives) {
  const at::Tensor none;
  const auto call = [](const at::Tensor& p, const at::Tensor& weight, int64_t reduction) {
    return at::binary_cross_entropy(
        p, p, weight.defined() ? std::make_optional(weight) : std::nullopt, reduction);
  };
  const at::Tensor p = at::full({2, 3}, 0.5);
  for (const char* policy : {"torch", "torch-fixed", "apex-o1", "lean compute=fp16"}) {
    const Autocast region(find_policy(policy));
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(concat(policy, " ", dtype));
      const at::Tensor x = p.to(dtype);
      EXPECT_THROW((void)call(x, none, at::Reduction::Mean), InvalidArgument);
      EXPECT_THROW((void)call(x, x, at::Reduction::None), InvalidArgument);
      EXPECT_THROW((void)call(x[0][0], none, at::Reduction::Sum), InvalidArgument);
      EXPECT_THROW(
          (void)call(at::zeros({2}, at::device(at::kMeta).dtype(dtype)), none, at::Reduction::Mean),
          InvalidArgument);
    }
  }
  for (const char* policy : {"torch-cpu", "keras", "torch-fixed binary_cross_entropy=fp32"}) {
    const Autocast region(find_policy(policy));
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(concat(policy, " ", dtype));
      const at::Tensor x = p.to(dtype);
      EXPECT_EQ(call(x, none, at::Reduction::Mean).scalar_type(), at::kFloat);
      EXPECT_EQ(call(x, x, at::Reduction::None).scalar_type(), at::kFloat);
      EXPECT_EQ(call(x[0][0], none, at::Reduction::Sum).scalar_type(), at::kFloat);
      EXPECT_EQ(call(x.narrow(0, 0, 0), none, at::Reduction::Sum).item<float>(), 0);
    }
  }
}

TEST(Autocast, BannedOperationSaysWhatToUse) {
  const at::Tensor p = at::full({2}, 0.5);
  {
    const Autocast region(find_policy("torch"));
    try {
      at::binary_cross_entropy(p, p);
      FAIL() << "expected InvalidArgument";
    } catch (const InvalidArgument& error) {
      EXPECT_STREQ(error.what(),
                   "autocast: operation aten::binary_cross_entropy is banned by policy \"torch "
                   "compute=bf16\"; use binary_cross_entropy_with_logits, which is safe in 16 "
                   "bits, or give it the rule fp32");
    }
  }
  {
    const Autocast region(find_policy("torch exp=banned"));
    try {
      at::exp(p);
      FAIL() << "expected InvalidArgument";
    } catch (const InvalidArgument& error) {
      EXPECT_STREQ(error.what(),
                   "autocast: operation aten::exp is banned by policy \"torch compute=bf16 "
                   "exp=banned\"; give it another rule, such as fp32");
    }
  }
  const Autocast region(find_policy("torch binary_cross_entropy=fp32"));
  const at::Tensor half = p.to(at::kBFloat16);
  EXPECT_EQ(at::binary_cross_entropy(half, half).scalar_type(), at::kFloat);
}

TEST(Autocast, ARuntimeEntryKeepsRmsNormIn16Bits) {
  const at::Tensor x = bf16({4, 8});
  const at::Tensor weight = at::ones({8}, at::kBFloat16);
  {
    const Autocast region(find_policy("torch rms_norm=fp32"));  // torch's own since 2.12
    EXPECT_EQ(at::rms_norm(x, {8}, weight).scalar_type(), at::kFloat);
  }
  const Autocast region(find_policy("torch rms_norm=keep"));
  EXPECT_EQ(at::rms_norm(x, {8}, weight).scalar_type(), at::kBFloat16);
}

// What a list moves to FP32 entries move back. layer_norm calls native_layer_norm, which is listed
// too.
TEST(Autocast, ARuntimeEntryDecidesTheFormatOfEveryNorm) {
  using Norm = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w)>;
  const std::vector<std::pair<std::vector<std::string>, Norm>> norms = {
      {{"rms_norm"},
       [](const at::Tensor& x, const at::Tensor& w) { return at::rms_norm(x, {8}, w); }},
      {{"layer_norm", "native_layer_norm"},
       [](const at::Tensor& x, const at::Tensor& w) { return at::layer_norm(x, {8}, w, w); }},
      {{"group_norm"},
       [](const at::Tensor& x, const at::Tensor& w) { return at::group_norm(x, 2, w, w); }},
      {{"softmax.int"},
       [](const at::Tensor& x, const at::Tensor& w) { return at::softmax(x.mul(w), -1); }}};
  for (const auto& [compute, dtype] :
       {std::pair{"bf16", at::kBFloat16}, std::pair{"fp16", at::kHalf}}) {
    const at::Tensor x = at::randn({4, 8});
    const at::Tensor w = at::ones({8});
    for (const auto& [operations, norm] : norms) {
      SCOPED_TRACE(concat(operations[0], " in ", compute));
      const auto dtype_with = [&, &names = operations, &call = norm, &format = compute](
                                  const char* rule, at::ScalarType arriving) {
        std::string policy = concat("torch compute=", format);
        for (const std::string& name : names) {
          policy += concat(" ", name, "=", rule);
        }
        const Autocast region(find_policy(policy));
        return call(x.to(arriving), w.to(arriving)).scalar_type();
      };
      EXPECT_EQ(dtype_with("fp32", dtype), at::kFloat);
      EXPECT_EQ(dtype_with("keep", dtype), dtype);
      EXPECT_EQ(dtype_with("lower", at::kFloat), dtype);
    }
  }
}

TEST(Autocast, DoubleAndIntegersPassAsTheyAre) {
  const Autocast region(find_policy("torch"));
  const at::Tensor x = at::ones({2, 2}, at::kDouble);
  EXPECT_EQ(at::mm(x, x).scalar_type(), at::kDouble);
  const at::Tensor i = at::ones({2, 2}, at::kLong);
  EXPECT_EQ(at::mm(i, i).scalar_type(), at::kLong);
}

TEST(Autocast, InPlaceAndOutFormsKeepTheirDtypes) {
  const Autocast region(find_policy("torch"));
  at::Tensor out = at::zeros({2, 2});
  at::mm_out(out, at::ones({2, 2}), at::ones({2, 2}));
  EXPECT_EQ(out.scalar_type(), at::kFloat);
  out.addmm_(at::ones({2, 2}), at::ones({2, 2}));
  EXPECT_TRUE(at::equal(out, at::full({2, 2}, 4.0F)));
}

// Each refuses FP32 with BF16 outside of a region.
TEST(Autocast, InPlaceFormsCastToWhatTheyWriteInto) {
  const at::Tensor index = at::tensor({0, 1}).to(at::kLong);
  const at::Tensor mask = at::ones({2}, at::kBool);
  const at::Tensor source = at::full({2}, 3.0F, at::kBFloat16);
  const c10::List<std::optional<at::Tensor>> indices({index});
  const std::vector<std::function<void(at::Tensor&)>> writes = {
      [&](at::Tensor& x) { x.index_put_(indices, source); },
      [&](at::Tensor& x) { x.index_add_(0, index, source); },
      [&](at::Tensor& x) { x.index_copy_(0, index, source); },
      [&](at::Tensor& x) { x.index_reduce_(0, index, source, "amax"); },
      [&](at::Tensor& x) { x.scatter_(0, index, source); },
      [&](at::Tensor& x) { x.scatter_add_(0, index, source); },
      [&](at::Tensor& x) { x.scatter_reduce_(0, index, source, "sum"); },
      [&](at::Tensor& x) { x.masked_scatter_(mask, source); },
      [&](at::Tensor& x) { x.put_(index, source); },
      [&](at::Tensor& x) { x.lerp_(source, 1.0); }};
  for (size_t i = 0; i < writes.size(); ++i) {
    at::Tensor x = at::zeros({2});
    EXPECT_ANY_THROW(writes[i](x)) << i;
    const Autocast region(find_policy("torch-fixed"));
    writes[i](x);
    EXPECT_TRUE(at::equal(x, at::full({2}, 3.0F))) << i;
  }
}

// out[mask] = layer(x)
TEST(Autocast, AssignmentByMaskTakesWhatALayerReturns) {
  const at::Tensor mask = at::tensor({1, 0, 1, 0}).to(at::kBool);
  const at::Tensor expected = mask.to(at::kFloat).unsqueeze(1).expand({4, 4}).mul(3);
  for (const char* policy : {"torch-fixed compute=bf16", "torch-fixed compute=fp16"}) {
    SCOPED_TRACE(policy);
    const Autocast region(find_policy(policy));
    const at::Tensor y = at::linear(at::ones({2, 3}), at::ones({4, 3}));
    ASSERT_NE(y.scalar_type(), at::kFloat);
    const auto written = [](const auto& write) {
      at::Tensor out = at::zeros({4, 4});
      write(out);
      return out;
    };
    EXPECT_TRUE(at::equal(written([&](at::Tensor& out) { out.index_put_({mask}, y); }), expected));
    EXPECT_TRUE(
        at::equal(written([&](at::Tensor& out) { out.index_put_({mask}, y[0][0]); }), expected));
    EXPECT_TRUE(
        at::equal(written([&](at::Tensor& out) { out.t().t().index_put_({mask}, y); }), expected));
    EXPECT_TRUE(at::equal(written([&](at::Tensor& out) {
                            out.index_put_({mask}, y);
                            out.index_put_({mask.logical_not().logical_and(mask)},
                                           y.narrow(0, 0, 0));  // of no row
                          }),
                          expected));
    EXPECT_TRUE(at::equal(
        written([&](at::Tensor& out) { out.masked_fill_(mask.unsqueeze(1), y[0][0]); }), expected));
    at::Tensor narrow = at::zeros({4, 4}, y.options());
    narrow.index_put_({mask}, y.to(at::kFloat));
    EXPECT_TRUE(at::equal(narrow, expected.to(y.scalar_type())));
    at::Tensor number = at::zeros({});
    number.scatter_add_(0, at::zeros({}, at::kLong), y[0][0]);
    EXPECT_EQ(number.item<float>(), 3);
  }
}

TEST(Autocast, TheGradientOfAnInPlaceFormReachesItsSource) {
  const at::Tensor source = at::ones({2}, at::kBFloat16).requires_grad_();
  const Autocast region(find_policy("torch-fixed"));
  at::Tensor x = at::zeros({2});
  x.index_add_(0, at::tensor({1, 0}).to(at::kLong), source);
  x.mul(at::tensor({2.0F, 5.0F})).sum().backward();
  EXPECT_TRUE(at::equal(source.grad(), at::tensor({5.0F, 2.0F}).to(at::kBFloat16)));
}

TEST(Autocast, ToSelfIsForInPlaceFormsAlone) {
  EXPECT_THROW((void)Autocast(find_policy("torch index_add=to_self")), InvalidArgument);
  EXPECT_THROW((void)Autocast(find_policy("torch index_add_=widest")), InvalidArgument);
  EXPECT_NO_THROW((void)Autocast(find_policy("torch-fixed index_add_=keep")));
}

TEST(Autocast, AListedOperationIsNotCastAgainInside) {
  // In FP32 throughout, although the addmm that linear becomes has rule lower.
  const Autocast region(find_policy("torch linear=fp32"));
  EXPECT_EQ(at::linear(bf16({2, 3}), at::ones({4, 3})).scalar_type(), at::kFloat);
}

TEST(Autocast, KeepLeavesTheOperationsInsideTheirOwnRules) {
  const Autocast region(find_policy("torch linear=keep"));
  EXPECT_EQ(at::linear(at::ones({2, 3}), at::ones({4, 3}), at::ones({4})).scalar_type(),
            at::kBFloat16);
}

// Batch normalization writes its running statistics although its schema does not say so.
TEST(Autocast, RunningStatisticsAreUpdatedUnderEveryRule) {
  const at::Tensor x = at::randn({8, 3}).add(5);
  for (const std::string policy : {"torch batch_norm=lower", "torch batch_norm=fp32"}) {
    const at::Tensor mean = at::zeros({3});
    const at::Tensor variance = at::ones({3});
    const Autocast region(find_policy(policy));
    at::batch_norm(x, {}, {}, mean, variance, true, 0.1, 1e-5, false);
    EXPECT_GT(mean.min().item<float>(), 0.1F) << policy;
  }
}

TEST(Autocast, MasterWeightsGetFp32Gradients) {
  const at::Tensor w = at::randn({4, 3}).requires_grad_();
  at::Tensor loss;
  {
    const Autocast region(find_policy("torch"));
    loss = at::linear(at::randn({2, 3}), w).sum();
  }
  loss.backward();
  EXPECT_EQ(w.grad().scalar_type(), at::kFloat);
}

TEST(Autocast, BackwardOutsideTheRegionMakesNoCastsOfItsOwn) {
  const at::Tensor w = at::randn({4, 3}).requires_grad_();
  at::Tensor loss;
  {
    const Autocast region(find_policy("torch"));
    loss = at::linear(at::randn({2, 3}), w).sum();
  }
  const int64_t casts = cast_statistics().casts;
  loss.backward();
  EXPECT_EQ(cast_statistics().casts, casts);
}

TEST(Autocast, OtherThreadsAreOutsideOfTheRegion) {
  const Autocast region(find_policy("torch"));
  at::ScalarType dtype{};
  std::thread([&] { dtype = product_dtype(); }).join();
  EXPECT_EQ(dtype, at::kFloat);
}

// As a thread of the backward engine does: the dispatch key arrives, the policy does not.
TEST(Autocast, AThreadThatInheritsTheDispatchStatePassesCallsOn) {
  const Autocast region(find_policy("torch"));
  const at::ThreadLocalState state;
  at::ScalarType inherited{};
  at::ScalarType own{};
  at::ScalarType after{};
  std::thread([&] {
    const at::ThreadLocalStateGuard guard(state);
    inherited = product_dtype();
    {
      const Autocast inner(find_policy("torch compute=fp16"));
      own = product_dtype();
    }
    after = product_dtype();
  }).join();
  EXPECT_EQ(inherited, at::kFloat);
  EXPECT_EQ(own, at::kHalf);
  EXPECT_EQ(after, at::kFloat);
}

TEST(Autocast, ThreadsHaveRegionsOfTheirOwn) {
  std::vector<at::ScalarType> dtypes(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    threads.emplace_back([&dtypes, i] {
      const Autocast region(find_policy(i % 2 == 0 ? "torch" : "torch compute=fp16"));
      for (int repeat = 0; repeat < 50; ++repeat) {
        dtypes[i] = product_dtype();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(dtypes, testing::ElementsAre(at::kBFloat16, at::kHalf, at::kBFloat16, at::kHalf));
}

TEST(Autocast, APolicyThatTheTextWouldNotGiveIsRefused) {
  EXPECT_THROW(Autocast(Policy{.base = "tensorflow"}), InvalidArgument);
  EXPECT_EQ(product_dtype(), at::kFloat);
}

TEST(Autocast, UnlistedOperationsKeepWhatArrives) {
  const Autocast region(find_policy("torch"));
  EXPECT_EQ(at::relu(bf16({2})).scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::relu(at::ones({2})).scalar_type(), at::kFloat);
}

TEST(Autocast, AnOperationOfAUsersLibraryCanBeListed) {
  const std::string name = "mantissa_amp_test::op";
  EXPECT_EQ(dtypes_of_users_operation("torch"), "BFloat16 Float BFloat16 Float none");
  EXPECT_EQ(dtypes_of_users_operation("torch " + name + "=lower"),
            "BFloat16 BFloat16 BFloat16 BFloat16 none");
  EXPECT_EQ(dtypes_of_users_operation("torch " + name + "=fp32"), "Float Float Float Float none");
  // As in torch, what may be left out does not decide: the bias follows x.
  EXPECT_EQ(dtypes_of_users_operation("torch " + name + "=widest"),
            "BFloat16 BFloat16 BFloat16 BFloat16 none");
}

TEST(Autocast, AScopeHasAComputeFormatOfItsOwn) {
  const Autocast region(find_policy("torch scope:*filter=fp32"));
  EXPECT_EQ(product_dtype(), at::kBFloat16);
  {
    const tensor::Scope block("blocks.0");
    EXPECT_EQ(product_dtype(), at::kBFloat16);
    const tensor::Scope filter("filter");
    EXPECT_EQ(product_dtype(), at::kFloat);
    const tensor::Scope mlp("mlp");
    EXPECT_EQ(product_dtype(), at::kFloat);
  }
  EXPECT_EQ(product_dtype(), at::kBFloat16);
}

TEST(Autocast, AnOperationHasARuleOfItsOwnInAScope) {
  const Autocast region(find_policy("torch mm@*filter=fp32"));
  EXPECT_EQ(product_dtype(), at::kBFloat16);
  const tensor::Scope block("blocks.0");
  EXPECT_EQ(product_dtype(), at::kBFloat16);
  {
    const tensor::Scope filter("filter");
    EXPECT_EQ(product_dtype(), at::kFloat);
    const Autocast inner(find_policy("torch"));
    EXPECT_EQ(product_dtype(), at::kBFloat16);
  }
  EXPECT_EQ(product_dtype(), at::kBFloat16);
}

TEST(Autocast, AnExpandedTensorIsCastOnceAndItsGradientIsWhole) {
  const at::Tensor small = at::randn({4, 2});
  const at::Tensor x = small.clone().requires_grad_();
  const at::Tensor w = at::randn({1000, 2, 1});
  at::Tensor loss;
  {
    const Autocast region(find_policy("torch"));
    loss = at::bmm(x.expand({1000, 4, 2}), w).sum();
  }
  loss.backward();
  const at::Tensor plain = small.clone().requires_grad_();
  at::bmm(plain.expand({1000, 4, 2}).to(at::kBFloat16), w.to(at::kBFloat16))
      .to(at::kFloat)
      .sum()
      .backward();
  EXPECT_TRUE(at::equal(x.grad(), plain.grad()));
}

TEST(Autocast, PolicyCanKeepFftsInFp32) {
  const Autocast region(find_policy("torch fft_rfft=fp32"));
  EXPECT_EQ(at::fft_rfft(bf16({8})).scalar_type(), at::kComplexFloat);
}

// The result is that of the same numbers in FP32, of lengths that are no powers of two as well.
TEST(Autocast, FftsOf16BitsAreThoseOfFp32) {
  using Transform = std::function<at::Tensor(const at::Tensor& x)>;
  const std::vector<std::pair<const char*, Transform>> transforms = {
      {"rfft", [](const at::Tensor& x) { return at::fft_rfft(x); }},
      {"rfft of columns", [](const at::Tensor& x) { return at::fft_rfft(x.t()); }},
      {"rfft of a longer signal", [](const at::Tensor& x) { return at::fft_rfft(x, 192); }},
      {"fft", [](const at::Tensor& x) { return at::fft_fft(x); }},
      {"hfft", [](const at::Tensor& x) { return at::fft_hfft(x, 5); }},
      {"irfft", [](const at::Tensor& x) { return at::fft_irfft(x, 7); }},
      {"rfft2", [](const at::Tensor& x) { return at::fft_rfft2(x); }},
      {"stft",
       [](const at::Tensor& x) {
         return at::stft(x, 4, 2, 4, at::ones({4}, x.options()), true, "reflect", false, true,
                         true);
       }},
      {"istft", [](const at::Tensor& x) {
         const at::Tensor spectrum = at::fft_rfft(at::ones({5, 4})).t();
         return at::istft(spectrum, 4, 2, 4, at::ones({4}, x.options()));
       }}};
  for (const auto& [policy, dtype] :
       {std::pair{"torch-fixed compute=bf16", at::kBFloat16},
        std::pair{"torch-fixed compute=fp16", at::kHalf}, std::pair{"lean", at::kBFloat16}}) {
    for (const int64_t length : {8, 12, 20, 7}) {
      const at::Tensor x = at::randn({3, length}).to(dtype);
      for (const auto& [name, transform] : transforms) {
        SCOPED_TRACE(concat(policy, ", ", name, " of ", length));
        const at::Tensor expected = transform(x.to(at::kFloat));
        const Autocast region(find_policy(policy));
        EXPECT_TRUE(at::equal(transform(x), expected));
      }
    }
  }
}

TEST(AutocastDeathTest, RegionsThatEndOutOfOrderEndTheProcess) {
  const Policy policy = find_policy("torch-fixed compute=bf16");
  prepare(policy);
  const auto out_of_order = [&policy] {
    std::optional<Autocast> outer(std::in_place, policy);
    const Autocast inner(policy);
    outer.reset();
  };
  EXPECT_DEATH(out_of_order(), "a region ends as number 1 while number 2 of this thread");
  const auto in_another_thread = [&policy] {
    std::optional<Autocast> region(std::in_place, policy);
    std::thread([&region] { region.reset(); }).join();
  };
  EXPECT_DEATH(in_another_thread(),
               "a region ends as number 1 while number 0 of this thread is the innermost; end "
               "regions in the thread that they began in, in the reverse of their order");
}

}  // namespace
}  // namespace mantissa::amp
