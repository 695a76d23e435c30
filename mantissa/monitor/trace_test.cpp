#include "mantissa/monitor/trace.h"

#include <algorithm>
#include <stdexcept>

#include <gmock/gmock.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::monitor {
namespace {

using ::testing::Contains;
using ::testing::Field;

std::vector<TracedCall> calls_of(const std::function<void()>& step) {
  std::vector<TracedCall> calls;
  trace_calls(step, [&](const TracedCall& call) { calls.push_back(call); });
  return calls;
}

const TracedCall& find(const std::vector<TracedCall>& calls, const std::string& name) {
  const auto found = std::find_if(calls.begin(), calls.end(),
                                  [&](const TracedCall& call) { return call.name == name; });
  if (found == calls.end()) {
    throw std::runtime_error("no call of " + name);
  }
  return *found;
}

TEST(Trace, VisitsInnerCallsFirst) {
  std::vector<std::string> outer_names;
  trace_calls(
      [] {
        at::linear(at::ones({2, 3}), at::ones({4, 3}));
      },
      [&](const TracedCall& call) {
        if (call.name == "aten::mm" || call.name == "aten::addmm") {
          for (const TracedCall* outer = call.outer; outer; outer = outer->outer) {
            outer_names.push_back(outer->name);
          }
        }
      });
  EXPECT_THAT(outer_names, Contains("aten::linear"));
}

TEST(NodeName, OfAFunctionInCppIsThatOfItsType) {
  EXPECT_EQ(node_name("MmBackward0"), "MmBackward0");
  EXPECT_EQ(node_name("torch::autograd::CppNode<mine::(anonymous namespace)::LayerNorm>"),
            "LayerNormBackward");
  EXPECT_EQ(node_name("torch::autograd::CppNode<mine::Linear<mine::(anonymous namespace)::Gelu> >"),
            "LinearBackward");
  EXPECT_EQ(node_name("torch::autograd::CppNode<Plain>"), "PlainBackward");
}

TEST(Trace, ANodeHasTheScopeOfItsForwardCall) {
  const at::Tensor w = at::ones({3, 3}).requires_grad_();
  const auto calls = calls_of([&] {
    at::Tensor y;
    {
      const tensor::Scope scope("blocks.0");
      y = at::mm(at::ones({2, 3}), w);
    }
    y.sum().backward();
  });
  const TracedCall& node = find(calls, "MmBackward0");
  EXPECT_EQ(node.scope, "blocks.0");
  EXPECT_TRUE(node.in_backward);
  EXPECT_FALSE(node.operation.has_value());
  EXPECT_EQ(node.inputs.size(), 1);
  const auto inside = std::find_if(calls.begin(), calls.end(), [](const TracedCall& call) {
    return call.name == "aten::mm" && call.node == "MmBackward0";
  });
  ASSERT_NE(inside, calls.end());
  EXPECT_EQ(inside->scope, "blocks.0");
}

// y = x + mask * ... : what one operation of a node makes and another takes is not its output.
TEST(Trace, OutputsOfANodeAreWhatNoneOfItsOperationsTakes) {
  const at::Tensor w = at::ones({3, 3}).requires_grad_();
  const auto calls = calls_of([&] { at::mm(at::ones({2, 3}), w).pow(3).sum().backward(); });
  const TracedCall& node = find(calls, "PowBackward0");
  ASSERT_EQ(node.outputs.size(), 1);
  EXPECT_EQ(node.outputs[0].toTensor().sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(node.outputs[0].toTensor()[0][0].item<float>(), 27);  // 3 * 3^2
}

TEST(Trace, ATensorThatIsWrittenComesAsItWas) {
  const at::Tensor x = at::ones({2});
  const auto calls = calls_of([&] { x.add_(2); });
  const TracedCall& call = find(calls, "aten::add_");
  EXPECT_EQ(call.inputs[0].toTensor()[0].item<float>(), 1);
  EXPECT_EQ(call.outputs[0].toTensor()[0].item<float>(), 3);
}

TEST(Trace, ACallThatThrowsHasNoOutputs) {
  std::vector<TracedCall> calls;
  EXPECT_THROW(trace_calls(
                   [] {
                     at::mm(at::ones({2, 3}), at::ones({2, 3}));
                   },
                   [&](const TracedCall& call) { calls.push_back(call); }),
               c10::Error);
  EXPECT_TRUE(find(calls, "aten::mm").outputs.empty());
}

TEST(Trace, ChangesNoResult) {
  const auto gradient = [] {
    const at::Tensor w = at::ones({8, 8}).div(3).requires_grad_();
    at::mm(w, w).exp().log().sum().backward();
    return w.grad();
  };
  const at::Tensor plain = gradient();
  at::Tensor traced;
  trace_calls([&] { traced = gradient(); },
              [](const TracedCall& call) {
                if (call.operation && !call.outputs.empty() && call.outputs[0].isTensor()) {
                  (void)call.outputs[0].toTensor().sum();
                }
              });
  EXPECT_TRUE(at::equal(plain, traced));
}

TEST(Trace, WhatTheVisitCallsIsNotTraced) {
  int64_t visits = 0;
  trace_calls([] { at::ones({2}).neg(); },
              [&](const TracedCall& call) {
                visits += call.name == "aten::neg";
                (void)at::zeros({2}).neg();
              });
  EXPECT_EQ(visits, 1);
}

TEST(Trace, RethrowsWhatTheVisitThrows) {
  EXPECT_THROW(
      trace_calls([] { at::ones({2}); }, [](const TracedCall&) { throw std::logic_error("no"); }),
      std::logic_error);
  EXPECT_FALSE(calls_of([] { at::ones({2}); }).empty());
}

TEST(Trace, OneStepAtATime) {
  EXPECT_THROW(
      trace_calls([] { trace_calls([] {}, [](const TracedCall&) {}); }, [](const TracedCall&) {}),
      InvalidArgument);
}

}  // namespace
}  // namespace mantissa::monitor
