// With policy torch-cpu and LibTorch's own kernels, results and gradients are bit for bit those of
// at::autocast on CPU, for PyTorch's own sample inputs of every operation on its list.

#include "op_samples.h"

#include <set>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include "mantissa/amp/at_autocast_testing.h"
#include "mantissa/amp/autocast.h"
#include "mantissa/amp/torch_lists.h"

namespace mantissa::conformance {
namespace {

struct Formats {
  const char* name;
  numerics::Format compute;
  at::ScalarType dtype;  // of compute
  at::ScalarType first;  // of the first floating-point tensor of a call
  at::ScalarType others;
};

class OpSamplesTest : public ::testing::TestWithParam<Formats> {
 protected:
  void SetUp() override {
    threads_ = at::get_num_threads();
    at::set_num_threads(1);  // the order of sums must not depend on the machine
  }
  void TearDown() override { at::set_num_threads(threads_); }

 private:
  int threads_ = 1;
};

const OpSamples& samples() {
  static const OpSamples read;
  return read;
}

TEST_P(OpSamplesTest, AreThoseOfLibTorchsAutocastBitForBit) {
  const Formats& formats = GetParam();
  const amp::Policy policy{.base = "torch-cpu", .compute = formats.compute};
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  std::set<std::string> refused;  // by LibTorch, with every sample
  std::set<std::string> computed;
  for (size_t i = 0; i < samples().calls().size(); ++i) {
    const SampleCall& sample = samples().calls()[i];
    SCOPED_TRACE(sample.operation + ", call " + std::to_string(i));
    const auto arguments = [&] {
      return samples().arguments(
          sample, [&](int64_t n) { return n == 0 ? formats.first : formats.others; });
    };
    const Outcome theirs = run<amp::AtAutocast>(sample.handle, arguments(), formats.dtype);
    const Outcome ours = run<amp::Autocast>(sample.handle, arguments(), policy);
    EXPECT_EQ(ours.error.empty(), theirs.error.empty())
        << "ours: " << ours.error << "\ntheirs: " << theirs.error;
    if (repeats(sample)) {
      EXPECT_TRUE(same_bits(ours.results, theirs.results)) << "results";
      EXPECT_TRUE(same_bits(ours.gradients, theirs.gradients)) << "gradients";
    }
    (theirs.error.empty() ? computed : refused).insert(sample.operation);
  }
  for (const std::string& operation : computed) {
    refused.erase(operation);
  }
  // FP32 of one version is what the samples are made for. Of 16 bits LibTorch refuses some.
  if (formats.first == at::kFloat && samples().version() == TORCH_VERSION) {
    EXPECT_THAT(refused, ::testing::IsEmpty());
  } else {
    EXPECT_GT(computed.size(), refused.size());
  }
}

constexpr auto kBf16 = numerics::Format::bf16;
constexpr auto kFp16 = numerics::Format::fp16;

INSTANTIATE_TEST_SUITE_P(
    Formats, OpSamplesTest,
    ::testing::Values(Formats{"Bf16OfFp32", kBf16, at::kBFloat16, at::kFloat, at::kFloat},
                      Formats{"Bf16OfBf16", kBf16, at::kBFloat16, at::kBFloat16, at::kBFloat16},
                      Formats{"Bf16OfBoth", kBf16, at::kBFloat16, at::kBFloat16, at::kFloat},
                      Formats{"Fp16OfFp32", kFp16, at::kHalf, at::kFloat, at::kFloat},
                      Formats{"Fp16OfFp16", kFp16, at::kHalf, at::kHalf, at::kHalf}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(OpSamples, EveryListedOperationHasOneOrIsNamedAsMissing) {
  if (samples().version() != TORCH_VERSION) {
    GTEST_SKIP() << "the samples are those of LibTorch " << samples().version()
                 << ", and operations that " << TORCH_VERSION << " lacks are left out";
  }
  const int minor = std::stoi(samples().version().substr(2));
  std::set<std::string> missing;
  for (const amp::OpRule& row : amp::torch_list(amp::TorchList::cpu, minor)) {
    missing.insert(std::string(row.operation));
  }
  for (const SampleCall& sample : samples().calls()) {
    missing.erase(sample.operation);
  }
  const std::vector<std::string>& named = samples().missing();
  EXPECT_EQ(missing, std::set<std::string>(named.begin(), named.end()));
}

}  // namespace
}  // namespace mantissa::conformance
