// Operations and passes on devices: on CUDA where there is one, and everywhere on a device that has
// the kernels of ops/cuda run by the host (cuda/kernels_on_host.h), so that they are tested without
// an accelerator. Elements of updates are bit for bit those of the CPU's reference.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/ops/activation.h"
#include "mantissa/ops/adamw.h"
#include "mantissa/ops/cuda/kernels_on_host.h"
#include "mantissa/ops/device_kernels.h"
#include "mantissa/ops/dropout.h"
#include "mantissa/ops/ema.h"
#include "mantissa/ops/embedding.h"
#include "mantissa/ops/gradient_pass.h"
#include "mantissa/ops/linear_cross_entropy.h"
#include "mantissa/ops/norm.h"
#include "mantissa/ops/rotary.h"
#include "mantissa/ops/sgd.h"
#include "mantissa/ops/update_forms_testing.h"
#include "mantissa/tensor/devices_testing.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

using at::Tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();

class Devices : public testing::TestWithParam<at::DeviceType> {
 protected:
  static void SetUpTestSuite() {
    if (tensor::missing_device(at::kPrivateUse1).empty()) {
      install_kernels_on_other_device();
    }
  }
  void SetUp() override { MANTISSA_SKIP_WITHOUT(GetParam()); }

  static at::Device device() { return {GetParam(), 0}; }
  static Tensor there(const Tensor& tensor) {
    return tensor.defined() ? tensor.detach().to(device(), tensor.scalar_type(), false, true)
                            : tensor;
  }
  static Tensor scalar(double value) { return at::full({}, value, at::kFloat); }
};

INSTANTIATE_TEST_SUITE_P(On, Devices, testing::ValuesIn(tensor::tested_devices({at::kPrivateUse1})),
                         tensor::device_name);

TEST_P(Devices, HasKernels) { EXPECT_NE(device_kernels(device()), nullptr); }

// ----- gradients

GradientPass passed(const std::vector<Tensor>& gradients, const Tensor& scale, at::Device device) {
  std::vector<Tensor> there;
  for (const Tensor& gradient : gradients) {
    Tensor moved = gradient.to(device);
    if (gradient.layout() == at::kStrided && gradient.is_non_overlapping_and_dense()) {
      moved =
          at::empty_strided(gradient.sizes(), gradient.strides(), gradient.options().device(device))
              .copy_(gradient);
    }
    there.push_back(moved);
  }
  const GradientPass result =
      gradient_pass_enqueued(there, scale.defined() ? scale.to(device) : scale, device);
  return {result.found_inf.cpu(), result.norm.cpu()};
}

// Squares of FP32 are exact in FP64 and their sums have relative errors below 2^-52 times the
// roundings on the way; then the root, and the rounding to FP32, which may fall on the other side.
TEST_P(Devices, GradientPassIsThatOfTheReference) {
  at::manual_seed(7);
  std::vector<Tensor> gradients = {at::randn({70000}),
                                   at::randn({33, 17}).to(at::kBFloat16).t(),
                                   at::randn({16385}).to(at::kHalf),
                                   at::randn({}),
                                   at::empty({0}),
                                   at::randn({40}).narrow(0, 3, 30),
                                   at::randn({5}).expand({3, 5})};
  for (int i = 0; i < 200; ++i) {  // more than fit into the arguments of one kernel
    gradients.push_back(at::randn({1 + i % 7}));
  }
  for (const Tensor& scale : {Tensor(), scalar(3)}) {
    const GradientPass expected = gradient_pass_reference(gradients, scale);
    const GradientPass result = passed(gradients, scale, device());
    EXPECT_TRUE(at::equal(result.found_inf, expected.found_inf));
    const float norm = expected.norm.item<float>();
    EXPECT_NEAR(result.norm.item<float>(), norm, norm * 0x1p-23F);
  }
}

TEST_P(Devices, GradientPassIsTheSameEachTime) {
  at::manual_seed(8);
  const std::vector<Tensor> gradients = {at::randn({100'001}).to(device()),
                                         at::randn({77}).to(device())};
  const Tensor first = gradient_pass_enqueued(gradients, {}, device()).norm.cpu();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(gradient_pass_enqueued(gradients, {}, device()).norm.cpu(), first));
  }
}

TEST_P(Devices, GradientPassFindsWhatIsNotFinite) {
  const auto found = [&](const std::vector<Tensor>& gradients, const Tensor& scale = {}) {
    return passed(gradients, scale, device()).found_inf.item<float>();
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const float bad : {kInf, -kInf, std::nanf("")}) {
      Tensor gradient = at::zeros({20001}, dtype);
      gradient[20000] = bad;
      EXPECT_EQ(found({at::ones({3}), gradient, at::empty({0})}, scalar(1024)), 1) << dtype;
    }
  }
  EXPECT_EQ(found({}), 0);
  EXPECT_EQ(found({at::empty({0})}, scalar(0)), 0);
  EXPECT_EQ(found({at::full({3}, 1e38, at::kFloat)}, scalar(0x1p-10)), 1);
  EXPECT_EQ(found({at::full({3}, 1e38, at::kFloat)}, scalar(1)), 0);
  for (const double scale : {0.0, 1e-42, HUGE_VAL, std::nan("")}) {
    EXPECT_EQ(found({at::zeros({2})}, scalar(scale)), 1) << scale;
  }
  EXPECT_EQ(passed({at::full({2}, kMax, at::kFloat)}, {}, device()).norm.item<float>(), kMax);
  EXPECT_EQ(passed({}, {}, device()).norm.item<float>(), 0);
}

// ----- updates

std::vector<Form> all_forms() {
  std::vector<Form> forms = kForms;
  forms.push_back({at::kBFloat16, Kept::stochastic});
  forms.push_back({at::kHalf, Kept::stochastic});
  return forms;
}

// Each form in sizes around those of pieces, odd ones, with other dtypes and strides of gradients,
// and at addresses that no vector can be read from.
std::vector<WeightUpdate> mixed_weights() {
  std::vector<WeightUpdate> result;
  for (const Form& form : all_forms()) {
    for (const int64_t length : {0, 1, 5, 1023, 4096, 4099}) {
      result.push_back(weight_of(form, at::randn({length}), at::randn({length}).to(form.dtype)));
    }
    result.push_back(weight_of(form, at::randn({6, 5}).t(), at::randn({5, 6}).to(form.dtype)));
    result.push_back(weight_of(form, at::randn({3, 4}), at::randn({4}).expand({3, 4})));
    result.push_back(weight_of(form, at::randn({41}).narrow(0, 1, 37),
                               at::randn({40}).to(form.dtype).narrow(0, 3, 37)));
  }
  for (size_t i = 0; i < result.size(); ++i) {
    result[i].stream = (uint64_t{i} << 40) + 2;
  }
  return result;
}

// On the device, in the same strides and as misaligned as here.
Tensor moved(const Tensor& tensor, at::Device device) {
  if (!tensor.defined()) {
    return tensor;
  }
  if (tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense()) {
    return tensor.to(device);
  }
  const int64_t offset = tensor.storage_offset() % 4;
  return at::empty({tensor.numel() + offset}, tensor.options().device(device))
      .as_strided(tensor.sizes(), tensor.strides(), offset)
      .copy_(tensor);
}

WeightUpdate moved(const WeightUpdate& weight, at::Device device) {
  WeightUpdate result = weight;
  result.gradient = moved(weight.gradient, device);
  result.master = moved(weight.master, device);
  result.model = moved(weight.model, device);
  result.rest = moved(weight.rest, device);
  result.lost = moved(weight.lost, device);
  return result;
}

GradientUse moved(const GradientUse& use, at::Device device) {
  return {moved(use.scale, device), moved(use.clip_factor, device), moved(use.found_inf, device),
          moved(use.stream_offset, device)};
}

Moment moment_of(const WeightUpdate& weight, at::ScalarType dtype, uint64_t stream) {
  const Tensor& pattern = weight.master.defined() ? weight.master : weight.model;
  Moment moment(at::zeros_like(pattern, dtype));
  moment.seed = 12;
  moment.stream = weight.stream + (stream << 62);
  return moment;
}

Moment moved(const Moment& moment, at::Device device) {
  Moment result = moment;
  result.values = moved(moment.values, device);
  return result;
}

// The same numbers as the kernels take them from the count on the device.
bool rounds_alike(double value) {
  return static_cast<float>(value * (1 - 0x1p-40)) == static_cast<float>(value * (1 + 0x1p-40));
}

TEST_P(Devices, AdamwIsBitForBitTheReference) {
  for (const at::ScalarType moments : {at::kFloat, at::kBFloat16}) {
    for (const WeightDecay decay : {WeightDecay::decoupled, WeightDecay::l2}) {
      at::manual_seed(121);
      std::vector<AdamwParameter> here;
      std::vector<AdamwParameter> there;
      for (const WeightUpdate& weight : mixed_weights()) {
        here.push_back({weight, moment_of(weight, moments, 1), moment_of(weight, moments, 2),
                        at::zeros({}, at::kLong)});
        const AdamwParameter& own = here.back();
        there.push_back({moved(own.weight, device()), moved(own.exp_avg, device()),
                         moved(own.exp_avg_sq, device()), moved(own.step, device())});
      }
      const GradientUse use = {scalar(3), scalar(0.3), scalar(0)};
      GradientUse use_there = moved(use, device());
      const AdamwOptions options = {.beta1 = 0.8, .beta2 = 0.97, .eps = 1e-6, .decay = decay};
      for (int step = 0; step < 3; ++step) {
        EXPECT_TRUE(rounds_alike(0.03 / (1 - std::pow(options.beta1, step + 1))));
        EXPECT_TRUE(rounds_alike(1 / std::sqrt(1 - std::pow(options.beta2, step + 1))));
        use_there.stream_offset = at::full({}, step, at::kLong).to(device());
        adamw_enqueued_(there, options, use_there);
        EXPECT_TRUE(adamw_reference_(here, options, use));
        for (AdamwParameter& each : here) {
          ++each.weight.stream;
          ++each.exp_avg.stream;
          ++each.exp_avg_sq.stream;
        }
      }
      for (size_t i = 0; i < here.size(); ++i) {
        SCOPED_TRACE(i);
        expect_same(there[i].weight, here[i].weight);
        EXPECT_TRUE(same_bits(there[i].exp_avg.values, here[i].exp_avg.values));
        EXPECT_TRUE(same_bits(there[i].exp_avg_sq.values, here[i].exp_avg_sq.values));
        EXPECT_EQ(there[i].step.item<int64_t>(), 3);
      }
    }
  }
}

TEST_P(Devices, SgdIsBitForBitTheReference) {
  for (const SgdOptions& options :
       {SgdOptions{.momentum = 0}, SgdOptions{.momentum = 0.9},
        SgdOptions{.momentum = 0.7, .kind = Momentum::nesterov, .decay = WeightDecay::l2}}) {
    at::manual_seed(122);
    std::vector<SgdParameter> here;
    std::vector<SgdParameter> there;
    for (const WeightUpdate& weight : mixed_weights()) {
      here.push_back({weight, options.momentum == 0 ? Moment() : moment_of(weight, at::kFloat, 1)});
      there.push_back({moved(weight, device()), moved(here.back().momentum, device())});
    }
    const GradientUse use = {scalar(3), scalar(0.3), scalar(0)};
    for (int step = 0; step < 3; ++step) {
      sgd_enqueued_(there, options, moved(use, device()));
      EXPECT_TRUE(sgd_reference_(here, options, use));
    }
    for (size_t i = 0; i < here.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same(there[i].weight, here[i].weight);
      EXPECT_TRUE(same_bits(there[i].momentum.values, here[i].momentum.values));
    }
  }
}

TEST_P(Devices, ASkippedStepLeavesEverythingBitForBit) {
  for (const float found_inf : {1.0F, std::nanf("")}) {
    at::manual_seed(124);
    std::vector<AdamwParameter> before;
    std::vector<AdamwParameter> after;
    for (const WeightUpdate& weight : mixed_weights()) {
      before.push_back({weight, moment_of(weight, at::kFloat, 1), moment_of(weight, at::kFloat, 2),
                        at::zeros({}, at::kLong)});
      const AdamwParameter& own = before.back();
      after.push_back({moved(own.weight, device()), moved(own.exp_avg, device()),
                       moved(own.exp_avg_sq, device()), moved(own.step, device())});
      after.back().weight.gradient.fill_(std::nanf(""));
    }
    adamw_enqueued_(after, {}, moved(GradientUse{scalar(0), {}, scalar(found_inf)}, device()));
    for (size_t i = 0; i < after.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same(after[i].weight, before[i].weight);
      EXPECT_TRUE(same_bits(after[i].exp_avg.values, before[i].exp_avg.values));
      EXPECT_EQ(after[i].step.item<int64_t>(), 0);
    }
  }
}

TEST_P(Devices, ARateOnTheDeviceIsTheSameNumber) {
  at::manual_seed(126);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    std::vector<AdamwParameter> number;
    std::vector<AdamwParameter> tensor;
    for (const WeightUpdate& weight : mixed_weights()) {
      for (std::vector<AdamwParameter>* list : {&number, &tensor}) {
        list->push_back({moved(weight, device()), moved(moment_of(weight, at::kFloat, 1), device()),
                         moved(moment_of(weight, at::kFloat, 2), device()),
                         at::zeros({}, at::TensorOptions(at::kLong).device(device()))});
      }
      number.back().weight.lr = 0.0625;
      tensor.back().weight.lr = 0.5;
      tensor.back().weight.lr_factor = at::full({}, 0.125, dtype).to(device());
    }
    adamw_enqueued_(number, {});
    adamw_enqueued_(tensor, {});
    for (size_t i = 0; i < number.size(); ++i) {
      SCOPED_TRACE(i);
      const WeightUpdate& weight = number[i].weight;
      expect_same(tensor[i].weight,
                  {.master = weight.master.defined() ? weight.master.cpu() : Tensor(),
                   .model = weight.model.defined() ? weight.model.cpu() : Tensor(),
                   .rest = weight.rest.defined() ? weight.rest.cpu() : Tensor(),
                   .lost = weight.lost.defined() ? weight.lost.cpu() : Tensor()});
    }
  }
}

TEST_P(Devices, NamesWhatDoesNotFit) {
  const WeightUpdate weight = moved(weight_of(kForms[1], at::ones({3}), at::ones({3})), device());
  const auto adamw_says = [&](const Moment& moment, const GradientUse& use) {
    return message_of<Error>([&] {
      adamw_enqueued_(
          {{weight, moment,
            moved(moment_of(weight_of(kForms[1], at::ones({3}), at::ones({3})), at::kFloat, 2),
                  device()),
            at::zeros({}, at::TensorOptions(at::kLong).device(device()))}},
          {}, use);
    });
  };
  const Moment good(at::zeros({3}).to(device()));
  Moment codes(at::zeros({3}, at::kByte).to(device()), at::zeros({1}).to(device()));
  EXPECT_EQ(
      adamw_says(codes, {}),
      "adamw_enqueued_: parameter 0: exp_avg is blockwise8, which only the fused passes on cpu "
      "store; use MomentFormat::fp32 or bf16");
  EXPECT_EQ(
      adamw_says(good, {.stream_offset = at::zeros({}, at::kLong)}),
      concat("adamw_enqueued_: stream_offset is Long of shape [] on cpu; pass a 0-d Long tensor "
             "on ",
             device()));
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { (void)gradient_pass_enqueued({at::ones({2})}, {}, device()); }),
            concat("gradient_pass: gradient 0 is on cpu; move it to ", device()));
  EXPECT_EQ(message_of<InvalidArgument>([] {
              sgd_({{weight_of(kForms[0], at::ones({3}), at::ones({3})), {}}}, {.momentum = 0},
                   {.stream_offset = at::zeros({}, at::kLong)});
            }),
            "sgd_: stream_offset is for the enqueued passes; add it to the streams");
}

TEST_P(Devices, AKernelThatTheDeviceRefusesIsAnError) {
  const DeviceKernels* kernels = device_kernels(device());
  cuda::Kernels refused = *kernels->functions;
  refused.gradient_sums = [](const cuda::GradientList&, void*) { return 1; };
  const DeviceKernels broken = {&refused, kernels->current_stream};
  register_device_kernels(GetParam(), &broken);
  const std::string message = message_of<Error>(
      [&] { (void)gradient_pass_enqueued({at::ones({2}).to(device())}, {}, device()); });
  register_device_kernels(GetParam(), kernels);
  EXPECT_EQ(message, concat("gradient_pass: the device refused a kernel: ", refused.error_text(1),
                            "; is this library built for its architecture (mantissa doctor)?"));
}

TEST_P(Devices, AutogradNoticesThatWeightsChanged) {
  const WeightUpdate weight = moved(weight_of(kForms[1], at::ones({3}), at::ones({3})), device());
  const auto version = weight.model._version();
  sgd_enqueued_({{weight, {}}}, {.momentum = 0});
  EXPECT_GT(weight.model._version(), version);
}

// ----- operations, beside those of the CPU

double distance(const Tensor& there, const Tensor& here) {
  const Tensor wide = here.detach().to(at::kDouble);
  return there.detach().cpu().to(at::kDouble).sub(wide).norm().item<double>() /
         wide.norm().item<double>();
}

struct Computed {
  std::vector<Tensor> values;  // the result, then the gradients of what requires one
};

template <typename Function>
Computed computed(const std::vector<Tensor>& arguments, at::Device device,
                  const Function& function) {
  std::vector<Tensor> leaves;
  for (const Tensor& argument : arguments) {
    leaves.push_back(argument.detach().to(device, argument.scalar_type(), false, true));
    if (argument.is_floating_point()) {
      leaves.back().requires_grad_();
    }
  }
  const Tensor result = function(leaves);
  result.to(at::kFloat).mul(0.25).sum().backward();
  Computed computed = {{result.detach()}};
  for (const Tensor& leaf : leaves) {
    if (leaf.requires_grad()) {
      computed.values.push_back(leaf.grad());
    }
  }
  return computed;
}

// `roundings` to the format on the way, each at most half a unit of it, and as many of FP32 sums.
template <typename Function>
void expect_as_on_cpu(const std::vector<Tensor>& arguments, at::Device device, double roundings,
                      const Function& function) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(c10::toString(dtype));
    std::vector<Tensor> cast;
    cast.reserve(arguments.size());
    for (const Tensor& argument : arguments) {
      cast.push_back(argument.is_floating_point() ? argument.to(dtype) : argument);
    }
    const Computed here = computed(cast, at::kCPU, function);
    const Computed there = computed(cast, device, function);
    const double unit = dtype == at::kFloat ? 0x1p-24 : 0x1p-9;
    for (size_t i = 0; i < here.values.size(); ++i) {
      EXPECT_EQ(there.values[i].scalar_type(), here.values[i].scalar_type()) << i;
      EXPECT_LT(distance(there.values[i], here.values[i]), roundings * unit) << i;
    }
  }
}

TEST_P(Devices, NormsAreThoseOfTheCpu) {
  at::manual_seed(31);
  const std::vector<Tensor> arguments = {at::randn({9, 33}), at::randn({33}), at::randn({33})};
  expect_as_on_cpu(arguments, device(), 16,
                   [](const std::vector<Tensor>& a) { return layer_norm(a[0], a[1], a[2], 1e-5); });
  expect_as_on_cpu({arguments[0], arguments[1]}, device(), 16,
                   [](const std::vector<Tensor>& a) { return rms_norm(a[0], a[1], 1e-5); });
  expect_as_on_cpu({arguments[0], arguments[0].flip(0), arguments[1], arguments[2]}, device(), 16,
                   [](const std::vector<Tensor>& a) {
                     const auto [sum, out] = add_layer_norm(a[0], a[1], a[2], a[3], 1e-5);
                     return at::cat({sum, out});
                   });
}

TEST_P(Devices, ActivationsAreThoseOfTheCpu) {
  at::manual_seed(32);
  const Tensor x = at::randn({7, 24});
  const Tensor weight = at::randn({10, 24}).mul(0.2);
  const Tensor bias = at::randn({10});
  expect_as_on_cpu({x, weight, bias}, device(), 16,
                   [](const std::vector<Tensor>& a) { return gelu_linear(a[0], a[1], a[2]); });
  expect_as_on_cpu({x, x.flip(0), weight}, device(), 16,
                   [](const std::vector<Tensor>& a) { return swiglu_linear(a[0], a[1], a[2]); });
}

TEST_P(Devices, RotaryAttentionIsThatOfTheCpu) {
  at::manual_seed(33);
  for (const bool causal : {false, true}) {
    expect_as_on_cpu(
        {at::randn({2, 11, 3, 2, 8})}, device(), 24,
        [causal](const std::vector<Tensor>& a) { return rotary_attention(a[0], 1e4, causal); });
  }
}

TEST_P(Devices, EmbeddingIsThatOfTheCpu) {
  at::manual_seed(35);
  const Tensor indices = at::randint(5, {4, 9}, at::kLong);
  expect_as_on_cpu({at::randn({5, 12}), indices}, device(), 16,
                   [](const std::vector<Tensor>& a) { return ops::embedding(a[0], a[1], 2); });
}

// The mask does not depend on the device: what is dropped is zero in both.
TEST_P(Devices, DropoutIsThatOfTheCpu) {
  at::manual_seed(36);
  expect_as_on_cpu({at::randn({6, 37}), at::randn({6, 37})}, device(), 4,
                   [](const std::vector<Tensor>& a) {
                     at::manual_seed(7);
                     return ops::dropout_add(a[0], a[1], 0.3);
                   });
  at::manual_seed(7);
  const Tensor here = ops::dropout(at::ones({500}), 0.3);
  at::manual_seed(7);
  EXPECT_TRUE(at::equal(ops::dropout(at::ones({500}).to(device()), 0.3).cpu(), here));
}

TEST_P(Devices, AveragesAreBitForBitTheReference) {
  at::manual_seed(38);
  for (const Form& form : kForms) {
    const WeightUpdate weight = weight_of(form, at::randn({129}), at::randn({129}));
    const Tensor shadow = at::randn({129});
    const Tensor moved_shadow = there(shadow);
    ema_reference_({{weight, shadow}}, 0.99);
    ema_composed_({{moved(weight, device()), moved_shadow}}, scalar(1 - 0.99));
    EXPECT_TRUE(at::equal(moved_shadow.cpu(), shadow));
  }
}

struct LossCase {
  LinearCrossEntropyOptions options;
  bool has_bias;
};

// Against FP64: products of D terms, sums over V classes and over rows, each with at most as many
// roundings of FP32 as terms; gradients of logits are rounded once to the format of the input.
TEST_P(Devices, LinearCrossEntropyIsThatOfTheReference) {
  at::manual_seed(34);
  constexpr int64_t kRows = 13;
  constexpr int64_t kFeatures = 12;
  constexpr int64_t kClasses = 601;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const LossCase& each :
         {LossCase{{}, false}, LossCase{{at::Reduction::Sum, 3, 0.1}, true}}) {
      SCOPED_TRACE(c10::toString(dtype));
      const Tensor input = at::randn({kRows, kFeatures}).to(dtype);
      const Tensor weight = at::randn({kClasses, kFeatures}).to(dtype);
      const auto bias =
          each.has_bias ? std::make_optional(at::randn({kClasses}).to(dtype)) : std::nullopt;
      Tensor targets = at::randint(kClasses, {kRows}, at::kLong);
      targets[2] = each.options.ignore_index;
      const LinearCrossEntropy expected =
          linear_cross_entropy_reference(input, weight, bias, targets, each.options);
      const Tensor x = there(input).requires_grad_();
      const Tensor w = there(weight).requires_grad_();
      std::optional<Tensor> b;
      if (bias) {
        b = there(*bias).requires_grad_();
      }
      const Tensor loss = linear_cross_entropy(x, w, b, targets.to(device()), each.options);
      loss.backward();
      // BF16 logits are rounded where no product gives FP32: by 2^-9 of up to 16.
      const bool rounds_logits = dtype == at::kBFloat16 && GetParam() != at::kCUDA;
      const double sums = (kFeatures + kClasses / 256.0 + kRows + 8) * 0x1p-24;
      const double unit = dtype == at::kFloat ? sums : dtype == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
      EXPECT_NEAR(loss.cpu().item<double>() / expected.loss.item<double>(), 1,
                  rounds_logits ? 0x1p-7 : sums);
      const double bound = rounds_logits ? 0x1p-5 : 2 * unit + 4 * sums;
      EXPECT_LT(distance(x.grad(), expected.grad_input), bound);
      EXPECT_LT(distance(w.grad(), expected.grad_weight), bound);
      if (b) {
        EXPECT_LT(distance(b->grad(), expected.grad_bias), bound);
      }
    }
  }
}

TEST_P(Devices, LinearCrossEntropyOfExtremes) {
  const auto loss_of = [&](const Tensor& logits, int64_t target) {
    // A weight of ones makes the logits the bias.
    return linear_cross_entropy(at::zeros({1, 1}).to(device()),
                                at::ones({logits.size(0), 1}).to(device()), there(logits),
                                at::full({1}, target, at::kLong).to(device()))
        .cpu()
        .item<float>();
  };
  Tensor logits = at::full({300}, -kInf, at::kFloat);
  logits[5] = 2;
  logits[299] = 2;
  EXPECT_FLOAT_EQ(loss_of(logits, 5), std::log(2.0F)) << "classes that are masked";
  EXPECT_EQ(loss_of(logits, 6), kInf);
  logits[7] = std::nanf("");
  EXPECT_TRUE(std::isnan(loss_of(logits, 5)));
  for (const double all : {-1e10, 1e10}) {  // in FP64 there the logarithm of 300 keeps 20 bits
    EXPECT_NEAR(loss_of(at::full({300}, all, at::kFloat), 299), std::log(300.0), 0x1p-18) << all;
  }
  EXPECT_TRUE(std::isnan(loss_of(at::zeros({300}), 300))) << "no class";
  EXPECT_TRUE(std::isnan(loss_of(at::zeros({300}), -1)));
}

}  // namespace
}  // namespace mantissa::ops
