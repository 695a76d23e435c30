#include "mantissa/report/curves.h"
#include "mantissa/report/section.h"

namespace mantissa::report {

Section optimizer_section(const Material& material) {
  Section section{.id = "optimizer", .title = "Gradient norm and learning rate"};
  LineChart norm{.id = "gradient-norm",
                 .title = "Norm of the gradient",
                 .description =
                     "L2 norm of all gradients after unscaling and before clipping; a gap "
                     "where it was not finite.",
                 .y = "norm",
                 .scale = Scale::logarithmic};
  norm.lines = lines_of_groups(material, [](const Run& run) {
    return curve_of_steps(run, [](const record::Step& step) { return step.grad_norm; });
  });
  LineChart rate{.id = "learning-rate",
                 .title = "Learning rate",
                 .description = "The learning rate at each step.",
                 .y = "learning rate"};
  rate.lines = lines_of_groups(material, [](const Run& run) {
    return curve_of_steps(run, [](const record::Step& step) { return step.lr; });
  });
  for (LineChart* chart : {&norm, &rate}) {
    if (!chart->lines.empty()) {
      section.charts.emplace_back(std::move(*chart));
    }
  }
  return section;
}

}  // namespace mantissa::report
