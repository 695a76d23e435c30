#include "mantissa/report/decimation.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "mantissa/base/error.h"

namespace mantissa::report {
namespace {

constexpr size_t kNone = static_cast<size_t>(-1);

// Of the points of one interval.
struct Interval {
  size_t smallest = kNone;
  size_t largest = kNone;
  size_t gap = kNone;
  double low = 0;
  double high = 0;

  void add(const std::vector<Point>& points, size_t i) {
    const Point& point = points[i];
    if (!std::isfinite(point.y)) {
      gap = gap == kNone ? i : gap;
      return;
    }
    low = smallest == kNone ? point.low : std::min(low, point.low);
    high = smallest == kNone ? point.high : std::max(high, point.high);
    smallest = smallest == kNone || point.y < points[smallest].y ? i : smallest;
    largest = largest == kNone || point.y > points[largest].y ? i : largest;
  }

  void write(const std::vector<Point>& points, std::vector<Point>& kept) const {
    std::array<size_t, 3> places = {smallest, largest, gap};
    std::sort(places.begin(), places.end());
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i] != kNone && (i == 0 || places[i] != places[i - 1])) {
        Point point = points[places[i]];
        if (places[i] != gap) {
          point.low = low;
          point.high = high;
        }
        kept.push_back(point);
      }
    }
  }
};

}  // namespace

std::vector<Point> decimate(const std::vector<Point>& points, size_t most) {
  MANTISSA_CHECK(most >= 8, InvalidArgument, "decimate: ", most, " points; valid: 8 or more");
  if (points.size() <= most) {
    return points;
  }
  // Three of each interval, the first and the last.
  const size_t num_intervals = (most - 2) / 3;
  const double begin = points.front().x;
  const double width = (points.back().x - begin) / static_cast<double>(num_intervals);
  std::vector<Point> kept = {points.front()};
  size_t current = 0;
  Interval interval;
  for (size_t i = 1; i + 1 < points.size(); ++i) {
    const auto place = width > 0 ? static_cast<size_t>((points[i].x - begin) / width) : 0;
    const size_t index = std::min(place, num_intervals - 1);
    if (index != current) {
      interval.write(points, kept);
      interval = {};
      current = index;
    }
    interval.add(points, i);
  }
  interval.write(points, kept);
  kept.push_back(points.back());
  return kept;
}

size_t points_per_line(size_t num_lines) {
  constexpr size_t kOfAChart = 12000;
  constexpr size_t kMost = 3000;
  constexpr size_t kFewest = 200;
  return std::clamp(kOfAChart / std::max<size_t>(num_lines, 1), kFewest, kMost);
}

}  // namespace mantissa::report
