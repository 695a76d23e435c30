#include <cmath>

#include "mantissa/report/curves.h"
#include "mantissa/report/section.h"

namespace mantissa::report {
namespace {

// The best Markov models of the runs that have ended, where they are one number.
void add_markov_line(const Material& material, std::vector<Line>& lines) {
  double bits = std::nan("");
  double last_step = 0;
  for (const Run& run : material.runs) {
    if (run.summary && std::isfinite(run.summary->markov_bits_per_base)) {
      const double own = run.summary->markov_bits_per_base;
      if (std::isfinite(bits) && std::fabs(own - bits) > 1e-9) {
        return;
      }
      bits = own;
      last_step = std::max(last_step, static_cast<double>(run.summary->steps));
    }
  }
  if (std::isfinite(bits) && last_step > 0) {
    Line line{.name = "best Markov model", .color = material.groups.size()};
    line.style = LineStyle::dashes;
    line.points = {{0, bits, bits, bits}, {last_step, bits, bits, bits}};
    lines.push_back(std::move(line));
  }
}

}  // namespace

Section learning_section(const Material& material) {
  Section section{.id = "learning", .title = "Learning"};
  LineChart validation{.id = "validation",
                       .title = "Validation, bits per base",
                       .description =
                           "Bits per base on held-out data at each validation; lower is "
                           "better, guessing costs 2.",
                       .y = "bits/base"};
  validation.lines = lines_of_groups(material, [](const Run& run) {
    Curve curve;
    for (const record::Evaluation& evaluation : run.evaluations) {
      curve.emplace_back(evaluation.step, evaluation.bits_per_base);
    }
    return curve;
  });
  if (!validation.lines.empty()) {
    add_markov_line(material, validation.lines);
    section.charts.emplace_back(std::move(validation));
  }
  LineChart training{.id = "training",
                     .title = "Training, bits per base",
                     .description = "The loss of each training step in bits per base.",
                     .y = "bits/base"};
  training.lines = lines_of_groups(material, [](const Run& run) {
    return curve_of_steps(run, [](const record::Step& step) { return step.bits_per_base; });
  });
  if (!training.lines.empty()) {
    section.charts.emplace_back(std::move(training));
  }
  const std::string bands = band_sentence(material);
  if (!bands.empty()) {
    section.prose.push_back(bands);
  }
  return section;
}

}  // namespace mantissa::report
