#include "curve.h"

#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "phix174.h"

namespace mantissa::golden {
namespace {

using numerics::Format;

std::string stored_curve(Format format) {
  return read_file(concat(MANTISSA_SOURCE_DIR "/tests/golden/curves/", to_string(format), ".txt"));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

class Golden : public ::testing::TestWithParam<Format> {};

TEST_P(Golden, ReferenceCurveIsBitEqual) {
  const std::string stored = stored_curve(GetParam());
  const std::string computed = curve_text(GetParam(), phix174());
  const std::vector<std::string> before = lines_of(stored);
  const std::vector<std::string> now = lines_of(computed);
  ASSERT_EQ(now.size(), before.size());
  for (size_t i = 0; i < now.size(); ++i) {
    // A line begins with its step; all later lines follow from the first that differs.
    ASSERT_EQ(now[i], before[i]) << "the first line that differs, " << to_string(GetParam());
  }
  EXPECT_EQ(computed, stored);
}

TEST_P(Golden, CurveFallsAndShowsWhatItsFormatIsAbout) {
  const std::vector<std::string> lines = lines_of(stored_curve(GetParam()));
  std::vector<double> losses;
  int skipped = 0;
  int grown = 0;
  double last_scale = 0;
  for (size_t i = 2; i + 1 < lines.size(); ++i) {
    std::istringstream words(lines[i]);
    std::string number, hexadecimal, outcome;
    double loss = 0;
    double scale = 0;
    words >> number >> hexadecimal >> loss >> scale >> outcome;
    EXPECT_EQ(std::stod(hexadecimal), static_cast<float>(loss)) << lines[i];
    losses.push_back(loss);
    skipped += outcome == "skipped" ? 1 : 0;
    grown += i > 2 && scale > last_scale ? 1 : 0;
    last_scale = scale;
  }
  ASSERT_EQ(losses.size(), static_cast<size_t>(kCurveSteps));
  EXPECT_LT(losses.back(), losses.front());
  const bool scales = GetParam() == Format::fp16;
  EXPECT_EQ(skipped > 2, scales);
  EXPECT_EQ(grown > 0, scales);
}

INSTANTIATE_TEST_SUITE_P(Formats, Golden, ::testing::ValuesIn(kCurveFormats),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace mantissa::golden
