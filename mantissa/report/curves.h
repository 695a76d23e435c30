#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/report/chart.h"
#include "mantissa/report/section.h"

namespace mantissa::report {

/// Value at a step.
using Curve = std::vector<std::pair<int64_t, double>>;

/// A line for each group of runs: the mean of its runs at each step, and the band from their
/// smallest to their largest. `curve` gives that of a run; groups without any value are left out.
template <typename CurveOf>
std::vector<Line> lines_of_groups(const Material& material, CurveOf curve);

/// The above for curves that are there: one for each run.
MANTISSA_API std::vector<Line> group_lines(const Material& material,
                                           const std::vector<Curve>& curves);

template <typename CurveOf>
std::vector<Line> lines_of_groups(const Material& material, CurveOf curve) {
  std::vector<Curve> curves;
  for (const Run& run : material.runs) {
    curves.push_back(curve(run));
  }
  return group_lines(material, curves);
}

/// One number of every step.
template <typename Get>
Curve curve_of_steps(const Run& run, Get get) {
  Curve curve;
  curve.reserve(run.steps.size());
  for (const record::Step& step : run.steps) {
    curve.emplace_back(step.step, get(step));
  }
  return curve;
}

/// What a reader must know of the bands; empty when every group is one run.
MANTISSA_API std::string band_sentence(const Material& material);

}  // namespace mantissa::report
