// Hyena under policies: what makes the filters stays in FP32 by recipes/policies/hyena.toml, and
// what else runs in 16 bits.
#include <map>
#include <memory>
#include <set>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randint.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/parameter_formats.h"
#include "mantissa/base/random.h"
#include "mantissa/models/hyena.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/scope.h"

namespace mantissa {
namespace {

using at::Tensor;
using numerics::Format;

constexpr int64_t kLength = 32768;

models::HyenaOptions small() {
  return {.vocabulary = 16, .layers = 2, .width = 16, .filter = {.positions = kLength}};
}

amp::Policy policy_file(Format compute, Format param) {
  amp::Policy policy = amp::find_policy(MANTISSA_SOURCE_DIR "/recipes/policies/hyena.toml");
  policy.compute = compute;
  policy.param = param;
  return policy;
}

// Filters as trained ones are: at the beginning they are near a constant.
void enlarge_filters(const models::Hyena& model) {
  uint64_t stream = 0;
  for (const tensor::Parameter& parameter : model.parameters()) {
    Random random(3, stream++);
    if (parameter.name.find(".filter.l") != std::string::npos) {
      const at::NoGradGuard no_grad;
      auto* values = parameter.value.mutable_data_ptr<float>();
      for (int64_t i = 0; i < parameter.value.numel(); ++i) {
        values[i] += static_cast<float>(0.1 * random.normal());
      }
    }
  }
}

double relative(const Tensor& x, const Tensor& exact) {
  return ((x - exact).norm() / exact.norm()).item<double>();
}

Tensor steps_of(const Tensor& filter) { return filter.diff(1, 0); }

// FP32 parameters and BF16 ones, BF16 and FP16: the filters are those of FP32, bit for bit.
TEST(HyenaPrecision, FiltersStayInFp32ByThePolicyOfTheModel) {
  for (const Format compute : {Format::bf16, Format::fp16}) {
    for (const Format param : {Format::fp32, compute}) {
      const models::Hyena model(small(), 1);
      enlarge_filters(model);
      const Tensor expected = model.filters(1, kLength).detach().clone();
      const amp::Policy policy = policy_file(compute, param);
      const amp::ParameterFormats formats(policy, model.parameters());
      formats.cast_parameters_();
      for (const auto& [name, format] : formats.formats()) {
        const bool is_filter = name.find(".filter.") != std::string::npos;
        EXPECT_EQ(format, is_filter ? Format::fp32 : param) << name;
      }
      const amp::Autocast region(policy, formats);
      EXPECT_TRUE(at::equal(model.filters(1, kLength), expected));
    }
  }
}

// The test above can fail: with a policy that says nothing of filters they are rounded, and what is
// lost is their shape. The steps from tap to tap are wrong by several times themselves, in FP16 too
// whose taps are right to a few thousandths.
TEST(HyenaPrecision, FiltersLoseTheirShapeInSixteenBits) {
  const models::Hyena model(small(), 1);
  enlarge_filters(model);
  const Tensor exact = model.filters(1, kLength).detach();
  for (const char* compute : {"bf16", "fp16"}) {
    const amp::Autocast region(amp::find_policy(std::string("torch-fixed compute=") + compute));
    const Tensor rounded = model.filters(1, kLength).detach();
    EXPECT_LT(relative(rounded, exact), 0.5) << compute;
    EXPECT_GT(relative(rounded, exact), 1e-4) << compute;
    EXPECT_GT(relative(steps_of(rounded), steps_of(exact)), 1) << compute;
  }
}

// Formats of what products and sines read, by the scope in which they run.
std::map<std::string, std::set<at::ScalarType>> formats_of_products(const amp::Policy& policy,
                                                                    const models::Hyena& model) {
  static thread_local std::map<std::string, std::set<at::ScalarType>>* seen = nullptr;
  std::map<std::string, std::set<at::ScalarType>> formats;
  seen = &formats;
  const at::RecordFunctionGuard enable(true);
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call)
                                     -> std::unique_ptr<at::ObserverContext> {
        const std::string_view name = call.name();
        if (name == "aten::addmm" || name == "aten::mm" || name == "aten::sin") {
          for (const c10::IValue& input : call.inputs()) {
            if (input.isTensor()) {
              (*seen)[tensor::current_scope()].insert(input.toTensor().scalar_type());
            }
          }
        }
        return nullptr;
      }).needsInputs(true));
  {
    const amp::ParameterFormats own(policy, model.parameters());
    const amp::Autocast region(policy, own);
    (void)model.forward(at::randint(16, {2, 64}, at::kLong));
  }
  at::removeCallback(handle);
  return formats;
}

TEST(HyenaPrecision, OnlyFiltersAreComputedInFp32) {
  const models::Hyena model(small(), 1);
  const std::set<at::ScalarType> fp32 = {at::kFloat};
  const auto formats = formats_of_products(policy_file(Format::bf16, Format::fp32), model);
  EXPECT_EQ(formats.at("blocks.0.hyena.filter"), fp32);
  EXPECT_EQ(formats.at("blocks.1.hyena.filter"), fp32);
  EXPECT_TRUE(formats.at("blocks.0.hyena").contains(at::kBFloat16));
  const auto plain = formats_of_products(amp::find_policy("torch-fixed compute=bf16"), model);
  EXPECT_TRUE(plain.at("blocks.0.hyena.filter").contains(at::kBFloat16));
}

// Each of some ten roundings a block moves numbers by up to half an epsilon of the format, as
// independent errors: sqrt(20) * 2^-9 is 0.009 in BF16 and 0.001 in FP16, and gradients pass twice
// as many. Four times that.
TEST(HyenaPrecision, SixteenBitsAreNearFp32) {
  at::manual_seed(5);
  const Tensor tokens = at::randint(7, 11, {2, 257}, at::kLong);
  const Tensor targets = tokens.roll(-1, 1);
  for (const auto direction : {models::Direction::causal, models::Direction::bidirectional}) {
    models::HyenaOptions options = small();
    options.direction = direction;
    const models::Hyena model(options, 1);
    enlarge_filters(model);
    const Tensor exact = model.forward(tokens).detach();
    model.loss(tokens, targets).backward();
    std::map<std::string, Tensor> gradients;
    for (const tensor::Parameter& parameter : model.parameters()) {
      gradients[parameter.name] = parameter.value.grad();
      parameter.value.mutable_grad().reset();
    }
    for (const Format compute : {Format::bf16, Format::fp16}) {
      const double roundoff = compute == Format::bf16 ? 0x1p-9 : 0x1p-12;
      Tensor loss;
      {
        const amp::Policy policy = policy_file(compute, Format::fp32);
        const amp::ParameterFormats formats(policy, model.parameters());
        const amp::Autocast region(policy, formats);
        EXPECT_LT(relative(model.forward(tokens), exact), 4 * 4.5 * roundoff);
        loss = model.loss(tokens, targets);
      }
      loss.mul(1024).backward();
      for (const tensor::Parameter& parameter : model.parameters()) {
        const Tensor gradient = parameter.value.grad().div(1024);
        EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << parameter.name;
        EXPECT_LT(relative(gradient, gradients.at(parameter.name)), 8 * 4.5 * roundoff)
            << parameter.name;
        parameter.value.mutable_grad().reset();
      }
    }
  }
}

}  // namespace
}  // namespace mantissa
