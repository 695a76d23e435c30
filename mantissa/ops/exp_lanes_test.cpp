#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/exp_lanes_test.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "mantissa/ops/cpu/exp_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using numerics::kernels::HWY_NAMESPACE::kFloats;

// `count` is a multiple of 64.
void exponentials(const float* x, float* result, size_t count) {
  for (size_t i = 0; i < count; i += hn::Lanes(kFloats)) {
    hn::StoreU(exp_lanes(hn::LoadU(kFloats, x + i)), kFloats, result + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops {
namespace cpu {

HWY_EXPORT(exponentials);

}  // namespace cpu

namespace {

constexpr size_t kMostLanes = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Runs the test body with each instruction set that was compiled and that this processor has.
class ExpLanes : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { use(GetParam()); }
  void TearDown() override { use(0); }

  static std::vector<float> exponentials(std::vector<float> x) {
    const size_t size = x.size();
    x.resize((size + kMostLanes - 1) / kMostLanes * kMostLanes);
    std::vector<float> results(x.size());
    HWY_DYNAMIC_DISPATCH(cpu::exponentials)(x.data(), results.data(), x.size());
    results.resize(size);
    return results;
  }

 private:
  static void use(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, ExpLanes, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const testing::TestParamInfo<int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

// The distance of FP32 numbers around `value`.
double ulp(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, std::max(exponent - 24, -149));
}

// Every 4099th pattern of both signs, and all near the ends. Of all patterns the largest error is
// 1.0095 ulp with fused multiply-adds and 0.982 without.
TEST_P(ExpLanes, IsTheExactPowerToAnUlp) {
  std::vector<float> x;
  const auto add = [&x](float from, float to, uint32_t step) {
    const auto last = std::bit_cast<uint32_t>(to);
    for (auto bits = std::bit_cast<uint32_t>(from); bits <= last; bits += step) {
      x.push_back(std::bit_cast<float>(bits));
    }
  };
  add(0.0F, 88.7228F, 4099);
  add(-0.0F, -105.0F, 4099);
  add(-103.9F, -104.1F, 1);
  add(-87.3F, -87.4F, 1);
  add(88.7F, 88.7228F, 1);
  const std::vector<float> results = exponentials(x);
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    largest = std::max(largest, std::abs(results[i] - exact) / ulp(exact));
  }
  EXPECT_LT(largest, 1.01);
}

TEST_P(ExpLanes, ZeroGivesOneAndTheEndsZeroInfinityAndNan) {
  const std::vector<float> results =
      exponentials({0.0F, -0.0F, -104.0F, -1e30F, -kInfinity, 88.73F, 1e30F, kInfinity,
                    std::numeric_limits<float>::quiet_NaN()});
  EXPECT_EQ(std::vector<float>(results.begin(), results.end() - 1),
            std::vector<float>({1, 1, 0, 0, 0, kInfinity, kInfinity, kInfinity}));
  EXPECT_TRUE(std::isnan(results.back()));
}

}  // namespace
}  // namespace mantissa::ops
#endif
