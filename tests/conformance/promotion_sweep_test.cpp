// Every operation of PyTorch's sample inputs with several floating-point tensors, called with one
// of them in another format than the rest: what LibTorch refuses, policy torch-fixed computes.

#include <map>
#include <set>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/policy.h"
#include "op_samples.h"

namespace mantissa::conformance {
namespace {

using Names = std::set<std::string>;

// Operations that torch-fixed leaves refusing some mix, and why. What has no 16-bit kernel refuses
// 16 bits alone too, and its other tensors (a tolerance, a 0-d argument) should not decide.
const std::map<std::string, std::string>& left_refusing() {
  static const std::map<std::string, std::string> reasons = {
      {"batch_norm", "keeps FP32 weights and statistics beside 16-bit inputs; not the reverse"},
      {"binary_cross_entropy", "banned by the list for CUDA"},
      {"embedding_bag.padding_idx",
       "its optional weights would be rounded to the format of the table"},
      {"histogram.bin_ct", "no kernel takes 16 bits"},
      {"histogram.bins_tensor", "no kernel takes 16 bits"},
      {"histogramdd", "no kernel takes 16 bits"},
      {"histogramdd.TensorList_bins", "no kernel takes 16 bits"},
      {"instance_norm", "as batch_norm"},
      {"linalg_matrix_rank.atol_rtol_tensor", "no kernel takes 16 bits"},
      {"linalg_pinv.atol_rtol_tensor", "no kernel takes 16 bits"},
      {"special_chebyshev_polynomial_t", "no kernel takes 16 bits"},
      {"special_chebyshev_polynomial_u", "no kernel takes 16 bits"},
      {"special_chebyshev_polynomial_v", "no kernel takes 16 bits"},
      {"special_chebyshev_polynomial_w", "no kernel takes 16 bits"},
      {"special_hermite_polynomial_h", "no kernel takes 16 bits"},
      {"special_hermite_polynomial_he", "no kernel takes 16 bits"},
      {"special_laguerre_polynomial_l", "no kernel takes 16 bits"},
      {"special_legendre_polynomial_p", "no kernel takes 16 bits"},
      {"special_shifted_chebyshev_polynomial_t", "no kernel takes 16 bits"},
      {"special_shifted_chebyshev_polynomial_u", "no kernel takes 16 bits"},
      {"special_shifted_chebyshev_polynomial_v", "no kernel takes 16 bits"},
      {"special_shifted_chebyshev_polynomial_w", "no kernel takes 16 bits"},
      {"special_zeta", "no kernel takes 16 bits"},
  };
  return reasons;
}

class NoRegion {};

std::vector<at::Tensor> as_fp32(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(tensor.is_floating_point() ? tensor.to(at::kFloat) : tensor);
  }
  return result;
}

struct Sweep {
  Names refused;                                        // by LibTorch, of what it computes in FP32
  std::map<std::string, std::string> refused_by_fixed;  // with the error
  Names rounded_otherwise;  // promoted, but results are not those of the same values in FP32
};

bool promotes(const std::map<std::string, amp::ResolvedRule>& rules, const std::string& operation) {
  const auto found = rules.find("aten::" + operation);
  return found != rules.end() && found->second.source == "promote=all";
}

// FP32 with one argument in BF16, and BF16 with one in FP16: both meet in FP32.
void sweep(const OpSamples& samples, const SampleCall& sample, const amp::Policy& policy,
           bool promoted, Sweep& found) {
  const int64_t tensors = samples.floating_tensors(sample);
  for (const auto& formats :
       {std::pair(at::kBFloat16, at::kFloat), std::pair(at::kHalf, at::kBFloat16)}) {
    const at::ScalarType one = formats.first;
    const at::ScalarType others = formats.second;
    for (int64_t i = 0; i < tensors; ++i) {
      const auto arguments = [&] {
        return samples.arguments(sample, [&](int64_t n) { return n == i ? one : others; });
      };
      std::vector<c10::IValue> wide = arguments();
      for (c10::IValue& value : wide) {
        if (value.isTensor()) {
          value = as_fp32({value.toTensor()})[0];
        } else if (value.isTensorList()) {
          value = c10::List<at::Tensor>(as_fp32(value.toTensorVector()));
        }
      }
      const Outcome fp32 = run<NoRegion>(sample.handle, wide);
      if (!fp32.error.empty()) {
        continue;
      }
      if (!run<NoRegion>(sample.handle, arguments()).error.empty()) {
        found.refused.insert(sample.operation);
      }
      const Outcome fixed = run<amp::Autocast>(sample.handle, arguments(), policy);
      if (!fixed.error.empty()) {
        found.refused_by_fixed.emplace(sample.operation, fixed.error);
      } else if (promoted && repeats(sample) && !same_bits(fixed.results, fp32.results)) {
        found.rounded_otherwise.insert(sample.operation);
      }
    }
  }
}

class PromotionSweep : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    at::set_num_threads(1);  // the order of sums must not depend on the machine
    const OpSamples samples;
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard guard(&silence);
    const amp::Policy policy = amp::find_policy("torch-fixed");
    rules_ = amp::resolved_rules(policy);
    for (const SampleCall& sample : samples.calls()) {
      if (samples.floating_tensors(sample) > 1) {
        sampled_.insert(sample.operation);
        sweep(samples, sample, policy, promotes(rules_, sample.operation), found_);
      }
    }
  }

  static std::map<std::string, amp::ResolvedRule> rules_;
  static Names sampled_;
  static Sweep found_;
};

std::map<std::string, amp::ResolvedRule> PromotionSweep::rules_;
Names PromotionSweep::sampled_;
Sweep PromotionSweep::found_;

TEST_F(PromotionSweep, TorchFixedComputesWhatLibTorchRefuses) {
  for (const auto& [name, error] : found_.refused_by_fixed) {
    EXPECT_TRUE(left_refusing().contains(name)) << name << ": " << error;
  }
}

TEST_F(PromotionSweep, TorchFixedStillRefusesWhatIsSaidTo) {
  for (const auto& [name, reason] : left_refusing()) {
    EXPECT_TRUE(found_.refused_by_fixed.contains(name)) << name << ": " << reason;
  }
}

TEST_F(PromotionSweep, PromotedResultsAreThoseOfFp32) {
  EXPECT_THAT(found_.rounded_otherwise, ::testing::IsEmpty());
}

TEST_F(PromotionSweep, PromoteListsNothingThatLibTorchPromotes) {
  for (const std::string& operation : sampled_) {
    if (promotes(rules_, operation)) {
      EXPECT_TRUE(found_.refused.contains(operation)) << operation;
    }
  }
}

}  // namespace
}  // namespace mantissa::conformance
