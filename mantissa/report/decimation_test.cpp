#include "mantissa/report/decimation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"

namespace mantissa::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Point point(double x, double y) { return {x, y, y - 1, y + 1}; }

std::vector<Point> noise(size_t count, uint64_t seed, double share_of_gaps = 0) {
  Random random(seed, 0);
  std::vector<Point> points;
  double x = 0;
  for (size_t i = 0; i < count; ++i) {
    x += static_cast<double>(random.below(4));
    const double y = static_cast<double>(random.below(1000)) / 10;
    const bool is_gap = static_cast<double>(random.below(1000)) < 1000 * share_of_gaps;
    points.push_back(point(x, is_gap ? kNaN : y));
  }
  return points;
}

// The slow reference: each interval looks at all points, and says which of them stay.
std::vector<Point> reference(const std::vector<Point>& points, size_t most) {
  if (points.size() <= most) {
    return points;
  }
  const size_t num_intervals = (most - 2) / 3;
  const double begin = points.front().x;
  const double width = (points.back().x - begin) / static_cast<double>(num_intervals);
  std::vector<Point> kept = {points.front()};
  for (size_t interval = 0; interval < num_intervals; ++interval) {
    std::vector<size_t> inside;
    for (size_t i = 1; i + 1 < points.size(); ++i) {
      const double place = width > 0 ? std::floor((points[i].x - begin) / width) : 0;
      if (std::min(place, static_cast<double>(num_intervals - 1)) ==
          static_cast<double>(interval)) {
        inside.push_back(i);
      }
    }
    std::set<size_t> stay;
    std::vector<size_t> numbers;
    std::copy_if(inside.begin(), inside.end(), std::back_inserter(numbers),
                 [&](size_t i) { return std::isfinite(points[i].y); });
    const auto gap = std::find_if(inside.begin(), inside.end(),
                                  [&](size_t i) { return !std::isfinite(points[i].y); });
    const auto by_y = [&](size_t a, size_t b) { return points[a].y < points[b].y; };
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    for (const size_t i : numbers) {
      low = std::min(low, points[i].low);
      high = std::max(high, points[i].high);
    }
    if (!numbers.empty()) {
      stay.insert(*std::min_element(numbers.begin(), numbers.end(), by_y));
      stay.insert(*std::max_element(numbers.begin(), numbers.end(), by_y));
    }
    if (gap != inside.end()) {
      stay.insert(*gap);
    }
    for (const size_t i : stay) {
      const bool is_number = std::isfinite(points[i].y);
      kept.push_back(is_number ? Point{points[i].x, points[i].y, low, high} : points[i]);
    }
  }
  kept.push_back(points.back());
  return kept;
}

// NaN differs from itself.
std::vector<double> comparable(const std::vector<Point>& points) {
  std::vector<double> values;
  for (const Point& p : points) {
    for (const double value : {p.x, p.y, p.low, p.high}) {
      values.push_back(std::isnan(value) ? -1e300 : value);
    }
  }
  return values;
}

TEST(Decimation, AgreesWithTheSlowReference) {
  for (const size_t count : {0, 1, 7, 8, 9, 50, 333, 4000}) {
    for (const size_t most : {8, 9, 20, 100}) {
      for (const double gaps : {0.0, 0.05, 1.0}) {
        const std::vector<Point> points = noise(count, 100 * count + most, gaps);
        EXPECT_EQ(comparable(decimate(points, most)), comparable(reference(points, most)))
            << count << " points, at most " << most << ", gaps " << gaps;
      }
    }
  }
}

TEST(Decimation, KeepsExtremesEndsAndOrder) {
  std::vector<Point> points = noise(100000, 7);
  points[77777].y = 1e6;
  points[12345].y = -1e6;
  const std::vector<Point> kept = decimate(points, 1000);
  EXPECT_LE(kept.size(), 1000U);
  EXPECT_GT(kept.size(), 600U);
  EXPECT_EQ(kept.front(), points.front());
  EXPECT_EQ(kept.back(), points.back());
  const auto ys = std::minmax_element(kept.begin(), kept.end(),
                                      [](const Point& a, const Point& b) { return a.y < b.y; });
  EXPECT_EQ(ys.first->y, -1e6);
  EXPECT_EQ(ys.second->y, 1e6);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(),
                             [](const Point& a, const Point& b) { return a.x < b.x; }));
}

TEST(Decimation, KeepsALoneGap) {
  std::vector<Point> points = noise(10000, 3);
  points[5000].y = kNaN;
  const std::vector<Point> kept = decimate(points, 100);
  EXPECT_EQ(std::count_if(kept.begin(), kept.end(),
                          [](const Point& p) { return std::isnan(p.y) && !std::isnan(p.x); }),
            1);
}

TEST(Decimation, ABandIsAsWideAsAnyInItsInterval) {
  std::vector<Point> points = noise(1000, 5);
  points[500].low = -500;
  points[501].high = 700;
  const std::vector<Point> kept = decimate(points, 50);
  EXPECT_TRUE(std::any_of(kept.begin(), kept.end(), [](const Point& p) { return p.low == -500; }));
  EXPECT_TRUE(std::any_of(kept.begin(), kept.end(), [](const Point& p) { return p.high == 700; }));
}

TEST(Decimation, OfPointsAtOnePlaceStillKeepsExtremes) {
  std::vector<Point> points(100, point(5, 1));
  points[50].y = 9;
  const std::vector<Point> kept = decimate(points, 20);
  EXPECT_LE(kept.size(), 20U);
  EXPECT_TRUE(std::any_of(kept.begin(), kept.end(), [](const Point& p) { return p.y == 9; }));
  EXPECT_THROW(decimate(points, 7), InvalidArgument);
}

TEST(Decimation, ManyLinesHaveFewerPointsEach) {
  EXPECT_EQ(points_per_line(1), 3000U);
  EXPECT_EQ(points_per_line(10), 1200U);
  EXPECT_EQ(points_per_line(1000), 200U);
}

}  // namespace
}  // namespace mantissa::report
