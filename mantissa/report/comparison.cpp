#include "mantissa/report/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/text_table.h"

namespace mantissa::report {
namespace {

using record::Summary;

std::string bits(double value) {
  if (std::isnan(value)) {
    return "-";
  }
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.4f", value);
  return buffer.data();
}

int64_t total_peak(const Summary& run) {
  int64_t total = 0;
  for (const auto& [category, bytes] : run.peak_bytes) {
    total += bytes;
  }
  return total;
}

std::vector<Summary>::const_iterator fp32_run(const std::vector<Summary>& runs) {
  return std::find_if(runs.begin(), runs.end(),
                      [](const Summary& run) { return run.precision == "fp32"; });
}

std::string two_decimals(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.2f", value);
  return buffer.data();
}

// An autocast region casts each FP32 weight once and keeps the cast.
bool has_16bit_copies(const Summary& run) {
  constexpr double kFp32Bytes = 4;
  const auto weights = run.bytes_per_param.find("weights");
  return (run.precision == "bf16" || run.precision == "fp16") &&
         weights != run.bytes_per_param.end() && weights->second >= kFp32Bytes;
}

// Weights, gradients and state of the optimizer together.
double bytes_per_param(const Summary& run) {
  double total = 0;
  for (const auto& [part, bytes] : run.bytes_per_param) {
    total += bytes;
  }
  return total;
}

void check_comparable(const std::vector<Summary>& runs) {
  for (const Summary& run : runs) {
    const Summary& first = runs.front();
    MANTISSA_CHECK(run.seed == first.seed && run.params == first.params, InvalidArgument,
                   "compare: run ", run.precision, " has seed ", run.seed, " and ", run.params,
                   " parameters, run ", first.precision, " ", first.seed, " and ", first.params,
                   "; compare runs that differ in precision only");
  }
}

}  // namespace

std::vector<Figure> comparison_figures() {
  using Number = std::optional<double>;
  const auto known = [](double value) { return std::isnan(value) ? Number() : Number(value); };
  std::vector<Figure> figures;
  figures.push_back({"steps",
                     [](const Summary& run) {
                       return concat(run.steps, run.stopped_by == "patience" ? ", patience" : "");
                     },
                     [](const Summary& run) { return Number(static_cast<double>(run.steps)); }});
  figures.push_back({"step time, median",
                     [](const Summary& run) {
                       return std::isnan(run.step_time_s) ? "-" : seconds_text(run.step_time_s);
                     },
                     [=](const Summary& run) { return known(run.step_time_s); }});
  figures.push_back({"tokens/s",
                     [](const Summary& run) {
                       return std::isnan(run.tokens_per_s) ? "-" : count_text(run.tokens_per_s);
                     },
                     [=](const Summary& run) { return known(run.tokens_per_s); }});
  figures.push_back({"peak tensor bytes",
                     [](const Summary& run) { return bytes_text(total_peak(run)); },
                     [](const Summary& run) {
                       return run.peak_bytes.empty() ? Number() : Number(total_peak(run));
                     }});
  for (const char* category :
       {"weights", "gradients", "optimizer", "activations", "casts", "other"}) {
    const auto bytes = [category](const Summary& run) {
      const auto found = run.peak_bytes.find(category);
      return found == run.peak_bytes.end() ? std::optional<int64_t>() : found->second;
    };
    figures.push_back({category,
                       [bytes](const Summary& run) {
                         return bytes(run) ? bytes_text(*bytes(run)) : std::string("-");
                       },
                       [bytes](const Summary& run) { return Number(bytes(run)); },
                       /*is_part=*/true});
  }
  figures.push_back({"bytes a parameter",
                     [](const Summary& run) {
                       return run.bytes_per_param.empty() ? "-"
                                                          : two_decimals(bytes_per_param(run));
                     },
                     [](const Summary& run) {
                       return run.bytes_per_param.empty() ? Number() : Number(bytes_per_param(run));
                     }});
  figures.push_back({"validation, bits/base",
                     [](const Summary& run) { return bits(run.bits_per_base); },
                     [=](const Summary& run) { return known(run.bits_per_base); }});
  figures.push_back({"best Markov model",
                     [](const Summary& run) { return bits(run.markov_bits_per_base); },
                     [=](const Summary& run) { return known(run.markov_bits_per_base); }});
  figures.push_back({"loss scale at the end",
                     [](const Summary& run) { return scale_text(run.scale); },
                     [=](const Summary& run) { return known(run.scale); }});
  figures.push_back(
      {"skipped steps", [](const Summary& run) { return std::to_string(run.skipped_steps); },
       [](const Summary& run) { return Number(static_cast<double>(run.skipped_steps)); }});
  return figures;
}

std::string comparison_table(const std::vector<Summary>& runs) {
  MANTISSA_CHECK(!runs.empty(), InvalidArgument, "compare: no runs; name at least one precision");
  check_comparable(runs);
  std::vector<std::vector<std::string>> rows = {{""}};
  for (const Summary& run : runs) {
    rows.front().push_back(run.precision);
  }
  for (const Figure& figure : comparison_figures()) {
    std::vector<std::string> row = {(figure.is_part ? "  " : "") + figure.name};
    for (const Summary& run : runs) {
      row.push_back(figure.text(run));
    }
    rows.push_back(std::move(row));
  }
  return text_table(rows);
}

std::string slower_lines(const std::vector<Summary>& runs) {
  constexpr double kNoise = 1.02;
  const auto baseline = fp32_run(runs);
  std::string lines;
  for (const Summary& run : runs) {
    if (baseline != runs.end() && run.step_time_s > kNoise * baseline->step_time_s) {
      lines +=
          concat(run.precision, " is slower here: its steps took ",
                 two_decimals(run.step_time_s / baseline->step_time_s), " times those of fp32\n");
    }
  }
  return lines;
}

std::string larger_lines(const std::vector<Summary>& runs) {
  const auto baseline = fp32_run(runs);
  std::string lines;
  for (const Summary& run : runs) {
    if (baseline == runs.end() || total_peak(run) <= total_peak(*baseline)) {
      continue;
    }
    const double ratio =
        static_cast<double>(total_peak(run)) / static_cast<double>(total_peak(*baseline));
    lines += concat(run.precision, " takes more memory here: its peak is ", two_decimals(ratio),
                    " times that of fp32\n");
    if (has_16bit_copies(run)) {
      lines += concat("  16-bit copies of its fp32 weights: ", bytes_text(2 * run.params),
                      "; set precision.param to ", run.precision, ", or use more tokens a batch\n");
    }
    if (run.skipped_steps > 0) {
      lines += "  skipped steps run again to be explained, unless train.explain_skips is false\n";
    }
  }
  return lines;
}

}  // namespace mantissa::report
