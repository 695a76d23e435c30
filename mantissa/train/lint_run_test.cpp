#include "mantissa/train/lint_run.h"

#include <gmock/gmock.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/parameter_formats.h"
#include "mantissa/amp/policy.h"
#include "mantissa/monitor/trace.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/scope.h"
#include "mantissa/train/tiny_run_test.h"

namespace mantissa::train {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;

class LintRunTest : public TinyRunTest {
 protected:
  static void SetUpTestSuite() { ops::install_cpu_kernels(); }

  std::vector<std::string> hazards(const std::vector<Setting>& settings) const {
    std::vector<std::string> rules;
    for (const monitor::Finding& finding : lint_run(config(settings)).findings) {
      if (finding.severity == monitor::Severity::hazard) {
        rules.push_back(to_string(finding));
      }
    }
    return rules;
  }
};

TEST_F(LintRunTest, ThePoliciesThatWeShipHaveNoHazard) {
  EXPECT_THAT(lint_run(config()).findings, IsEmpty());
  for (const char* policy : {"torch-fixed", "torch", "lean"}) {
    for (const char* precision : {"bf16", "fp16"}) {
      EXPECT_THAT(hazards({{"precision.compute", precision}, {"precision.policy", policy}}),
                  IsEmpty())
          << policy << " " << precision;
    }
  }
}

TEST_F(LintRunTest, Fp16WithoutALossScaleHasVanishingGradients) {
  // The gradient of a logit is at most 1 over 8,192 targets, most are a sixteenth of that.
  EXPECT_THAT(hazards({{"precision.compute", "fp16"},
                       {"scale.kind", "none"},
                       {"train.batch", "64"},
                       {"data.context", "128"}}),
              Contains(testing::HasSubstr("hazard underflow")));
}

// A dynamic scale finds its place first.
TEST_F(LintRunTest, AScaleThatBeginsTooHighIsNoHazard) {
  EXPECT_THAT(hazards({{"precision.compute", "fp16"}, {"scale.initial", "67108864.0"}}), IsEmpty());
}

TEST_F(LintRunTest, AStaticScaleThatIsTooHighIsOne) {
  EXPECT_THAT(
      hazards({{"precision.compute", "fp16"}, {"scale.kind", "static"}, {"scale.initial", "1e12"}}),
      Contains(testing::HasSubstr("hazard overflow")));
}

// The kernel of a listed operation gets the formats of its policy, and lint sees those.
TEST(LintInARegion, SeesTheFormatsOfTheKernels) {
  const at::Tensor x = at::ones({16, 16});
  const auto formats = [&](const char* policy) {
    std::vector<at::ScalarType> dtypes;
    monitor::trace_calls(
        [&] {
          const amp::Autocast region(amp::parse_policy(policy));
          at::mm(x, x);
        },
        [&](const monitor::TracedCall& call) {
          if (call.name == "aten::mm" && !call.is_recast) {
            dtypes.push_back(call.inputs[0].toTensor().scalar_type());
          }
        });
    return dtypes;
  };
  EXPECT_THAT(formats("torch compute=bf16"), testing::ElementsAre(at::kBFloat16));
  EXPECT_THAT(formats("torch compute=bf16 mm=fp32"), testing::ElementsAre(at::kFloat));
  EXPECT_THAT(formats("torch compute=bf16 mm=keep"), testing::ElementsAre(at::kFloat));
}

// Rotary frequencies, in a region: the product casts the positions, and a scope of the policy
// keeps them.
TEST(LintInARegion, PositionsThatARegionRoundsAreNamed) {
  const at::Tensor positions = at::arange(3000, at::kFloat).unsqueeze(1);
  const auto rules = [&](const std::string& policy) {
    std::vector<std::string> names;
    const amp::Policy parsed = amp::parse_policy(policy);
    const amp::ParameterFormats formats(parsed, {});
    const auto report = monitor::lint([&] {
      const amp::Autocast region(parsed, formats);
      const tensor::Scope scope("rotary_position");
      at::matmul(positions, at::ones({1, 16}));
    });
    for (const monitor::Finding& finding : report.findings) {
      names.push_back(finding.rule);
    }
    return names;
  };
  for (const std::string compute : {"bf16", "fp16"}) {
    EXPECT_THAT(rules("torch-fixed compute=" + compute), Contains("position")) << compute;
    EXPECT_THAT(rules("genomics compute=" + compute), IsEmpty()) << compute;
  }
}

TEST(LintInARegion, ARuleOfThePolicyRemovesAFinding) {
  const at::Tensor x = at::ones({12}, at::kBFloat16);
  const auto rules = [&](const char* policy) {
    std::vector<std::string> names;
    const auto report = monitor::lint([&] {
      const amp::Autocast region(amp::parse_policy(policy));
      at::fft_rfft(x);
    });
    for (const monitor::Finding& finding : report.findings) {
      names.push_back(finding.rule);
    }
    return names;
  };
  EXPECT_THAT(rules("torch-fixed fft=keep"), Contains("half-fft"));
  EXPECT_THAT(rules("torch-fixed"), IsEmpty());
}

}  // namespace
}  // namespace mantissa::train
