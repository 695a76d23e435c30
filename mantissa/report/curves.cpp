#include "mantissa/report/curves.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>

#include "mantissa/report/decimation.h"

namespace mantissa::report {
namespace {

struct Sum {
  double total = 0;
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  int64_t count = 0;

  void add(double value) {
    if (std::isfinite(value)) {
      total += value;
      low = std::min(low, value);
      high = std::max(high, value);
      ++count;
    }
  }
};

std::vector<Point> points_of(const std::vector<const Curve*>& curves) {
  std::map<int64_t, Sum> sums;
  for (const Curve* curve : curves) {
    for (const auto& [step, value] : *curve) {
      sums[step].add(value);
    }
  }
  std::vector<Point> points;
  points.reserve(sums.size());
  for (const auto& [step, sum] : sums) {
    const double mean = sum.total / static_cast<double>(sum.count);  // NaN: a gap
    points.push_back({static_cast<double>(step), mean, sum.low, sum.high});
  }
  return points;
}

}  // namespace

std::vector<Line> group_lines(const Material& material, const std::vector<Curve>& curves) {
  std::vector<Line> lines;
  for (size_t i = 0; i < material.groups.size(); ++i) {
    const RunGroup& group = material.groups[i];
    std::vector<const Curve*> members;
    for (const size_t run : group.runs) {
      members.push_back(&curves.at(run));
    }
    Line line;
    line.name = group.name;
    line.color = i;
    line.has_band = group.runs.size() > 1;
    line.points = decimate(points_of(members), points_per_line(material.groups.size()));
    if (std::any_of(line.points.begin(), line.points.end(),
                    [](const Point& point) { return std::isfinite(point.y); })) {
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

std::string band_sentence(const Material& material) {
  const bool has_bands = std::any_of(material.groups.begin(), material.groups.end(),
                                     [](const RunGroup& group) { return group.runs.size() > 1; });
  return has_bands ? "Runs that differ only in their seed are one line, their mean; the band goes "
                     "from the smallest to the largest of them."
                   : "";
}

}  // namespace mantissa::report
