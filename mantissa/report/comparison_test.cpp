#include "mantissa/report/comparison.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::report {
namespace {

record::Summary example(const std::string& precision) {
  record::Summary run{};
  run.precision = precision;
  run.steps = 100;
  run.seed = 1;
  run.params = 1000;
  run.step_time_s = 0.0125;
  run.tokens_per_s = 81920;
  run.peak_bytes = {{"weights", 4000}, {"activations", 60000}};
  run.bytes_per_param = {{"weights", 4}, {"gradients", 4}, {"moments", 2.03125}};
  run.bits_per_base = 1.97654;
  run.markov_bits_per_base = 1.978;
  run.scale = 65536;
  run.skipped_steps = 2;
  return run;
}

TEST(Comparison, HasAColumnARunAndARowAFigure) {
  const std::string table = comparison_table({example("fp32"), example("fp16")});
  EXPECT_EQ(table,
            "                          fp32     fp16\n"
            "steps                      100      100\n"
            "step time, median      12.5 ms  12.5 ms\n"
            "tokens/s                 81.9k    81.9k\n"
            "peak tensor bytes      64.0 kB  64.0 kB\n"
            "  weights              4.00 kB  4.00 kB\n"
            "  gradients                  -        -\n"
            "  optimizer                  -        -\n"
            "  activations          60.0 kB  60.0 kB\n"
            "  casts                      -        -\n"
            "  other                      -        -\n"
            "bytes a parameter        10.03    10.03\n"
            "validation, bits/base   1.9765   1.9765\n"
            "best Markov model       1.9780   1.9780\n"
            "loss scale at the end     2^16     2^16\n"
            "skipped steps                2        2\n");
}

TEST(Comparison, FiguresHaveTheirNumbersInFull) {
  const record::Summary run = example("fp32");
  const std::vector<Figure> figures = comparison_figures();
  const auto number_of = [&](const std::string& name, const record::Summary& summary) {
    for (const Figure& figure : figures) {
      if (figure.name == name) {
        return figure.number(summary);
      }
    }
    return std::optional<double>(-1);
  };
  EXPECT_EQ(number_of("step time, median", run), 0.0125);
  EXPECT_EQ(number_of("validation, bits/base", run), 1.97654);
  EXPECT_EQ(number_of("peak tensor bytes", run), 64000);
  EXPECT_EQ(number_of("bytes a parameter", run), 10.03125);
  EXPECT_EQ(number_of("weights", run), 4000);
  EXPECT_EQ(number_of("other", run), std::nullopt);
  EXPECT_EQ(number_of("validation, bits/base", record::Summary{.bits_per_base = std::nan("")}),
            std::nullopt);
}

TEST(Comparison, ShowsADashWhereNothingIsHeldOut) {
  record::Summary run = example("fp32");
  run.bits_per_base = std::nan("");
  run.bytes_per_param.clear();
  EXPECT_THAT(comparison_table({run}), ::testing::HasSubstr("validation, bits/base        -"));
  EXPECT_THAT(comparison_table({run}), ::testing::HasSubstr("bytes a parameter            -"));
}

TEST(Comparison, SaysThatPatienceEndedARun) {
  record::Summary early = example("bf16");
  early.steps = 50;
  early.stopped_by = "patience";
  EXPECT_THAT(comparison_table({example("fp32"), early}),
              ::testing::HasSubstr("steps                      100  50, patience\n"));
}

TEST(Comparison, SaysWhichPrecisionWasSlower) {
  record::Summary slow = example("bf16");
  slow.step_time_s *= 1.25;
  record::Summary fast = example("fp16");
  fast.step_time_s *= 0.8;
  EXPECT_EQ(slower_lines({example("fp32"), slow, fast}),
            "bf16 is slower here: its steps took 1.25 times those of fp32\n");
  EXPECT_EQ(slower_lines({slow, fast}), "");
  record::Summary noise = example("tf32");
  noise.step_time_s *= 1.01;
  EXPECT_EQ(slower_lines({example("fp32"), noise}), "");
}

TEST(Comparison, SaysWhichPrecisionTookMoreMemoryAndThatWeightCopiesAreSome) {
  record::Summary copies = example("bf16");
  copies.peak_bytes["activations"] += 1920;  // 65920 of 64000
  copies.skipped_steps = 0;
  record::Summary narrow = copies;
  narrow.precision = "fp16";
  narrow.bytes_per_param["weights"] = 2;
  narrow.skipped_steps = 1;
  const record::Summary as_large = example("tf32");
  EXPECT_EQ(
      larger_lines({example("fp32"), copies, narrow, as_large}),
      "bf16 takes more memory here: its peak is 1.03 times that of fp32\n"
      "  16-bit copies of its fp32 weights: 2.00 kB; set precision.param to bf16, or use more "
      "tokens a batch\n"
      "fp16 takes more memory here: its peak is 1.03 times that of fp32\n"
      "  skipped steps run again to be explained, unless train.explain_skips is false\n");
  EXPECT_EQ(larger_lines({copies, narrow}), "");
  EXPECT_EQ(larger_lines({}), "");
}

TEST(Comparison, RefusesRunsThatDifferInMoreThanPrecision) {
  record::Summary other = example("bf16");
  other.seed = 2;
  EXPECT_THAT(
      [&] {
        comparison_table({example("fp32"), other});
      },
      ::testing::ThrowsMessage<InvalidArgument>(
          ::testing::HasSubstr("compare runs that differ in precision only")));
  EXPECT_THROW(comparison_table({}), InvalidArgument);
}

}  // namespace
}  // namespace mantissa::report
