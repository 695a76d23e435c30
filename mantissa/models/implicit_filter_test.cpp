#include "mantissa/models/implicit_filter.h"

#include <cmath>
#include <set>
#include <utility>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::models {
namespace {

// From the formula, with other numbers of positions and bands than the defaults.
TEST(ImplicitFilter, FeaturesAreTheFormulaRoundedOnce) {
  const ImplicitFilterOptions options = {.positions = 37, .bands = 3};
  const at::Tensor features = position_features(options, at::kFloat);
  const at::Tensor wide = position_features(options, at::kDouble);
  ASSERT_EQ(features.sizes(), (std::vector<int64_t>{37, 7}));
  const double frequencies[] = {1e-4, (1e-4 + 2) / 2, 2};
  for (int64_t t = 0; t < 37; ++t) {
    EXPECT_EQ(features[t][0].item<float>(), static_cast<float>(static_cast<double>(t) / 36));
    for (int64_t band = 0; band < 3; ++band) {
      const double angle = 2 * M_PI * frequencies[band] * static_cast<double>(t) / 37;
      // Angles up to 4 pi in FP64.
      EXPECT_NEAR(wide[t][1 + band].item<double>(), std::cos(angle), 1e-14);
      EXPECT_NEAR(wide[t][4 + band].item<double>(), -std::sin(angle), 1e-14);
    }
  }
  EXPECT_TRUE(features.equal(wide.to(at::kFloat)));
}

// At the share `decay` of the positions a channel has fallen to decay_target.
TEST(ImplicitFilter, WindowsFallToTheirTargetWhereTheirDecaySays) {
  const ImplicitFilterOptions options = {.positions = 1001,
                                         .slow_decay = 0.8,
                                         .fast_decay = 0.2,
                                         .decay_target = 0.05,
                                         .decay_shift = 0.25};
  const at::Tensor window = decay_window(options, 5, 1001, at::kDouble, at::kCPU);
  ASSERT_EQ(window.sizes(), (std::vector<int64_t>{1001, 5}));
  EXPECT_NEAR(window[800][0].item<double>(), 0.05 + 0.25, 1e-12);
  EXPECT_NEAR(window[200][4].item<double>(), 0.05 + 0.25, 1e-12);
  EXPECT_NEAR(window[0][2].item<double>(), 1.25, 1e-12);
  // Rates are in equal steps: the middle one is the mean of 1/0.8 and 1/0.2.
  EXPECT_NEAR(window[320][2].item<double>(), 0.05 + 0.25, 1e-12);
  EXPECT_EQ(decay_window(options, 5, 40, at::kFloat, at::kCPU).scalar_type(), at::kFloat);
}

// How many positions a format tells apart: figures counted by another program (numpy), of features
// rounded to the format, at five features.
TEST(ImplicitFilter, SixteenBitsDoNotTellPositionsApart) {
  const auto distinct = [](int64_t positions, at::ScalarType dtype) {
    const at::Tensor rounded =
        position_features({.positions = positions}, at::kFloat).to(dtype).to(at::kFloat);
    std::set<std::vector<float>> rows;
    const auto* values = rounded.const_data_ptr<float>();
    for (int64_t t = 0; t < positions; ++t) {
      rows.emplace(values + 5 * t, values + 5 * (t + 1));
    }
    return rows.size();
  };
  EXPECT_EQ(distinct(1024, at::kBFloat16), 1024);
  EXPECT_EQ(distinct(32768, at::kHalf), 26692);
  EXPECT_EQ(distinct(32768, at::kBFloat16), 7717);
  EXPECT_EQ(distinct(32768, at::kFloat), 32768);
}

TEST(ImplicitFilter, RefusesImpossibleValuesByName) {
  const auto message = [](const ImplicitFilterOptions& options) {
    return message_of<InvalidArgument>([&] { check("hyena", options); });
  };
  EXPECT_EQ(message({.positions = 0}), "hyena: positions is 0; it must be positive");
  EXPECT_EQ(message({.decay_target = 1}),
            "hyena: decay_target is 1; it must be above 0 and below 1");
  EXPECT_EQ(message({.decay_shift = -1}), "hyena: decay_shift is -1; it must not be negative");
  EXPECT_EQ(message({.frequency = 0}), "hyena: filter frequency is 0; it must be positive");
}

}  // namespace
}  // namespace mantissa::models
