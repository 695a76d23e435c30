#include "bench/table.h"

#include <array>
#include <cstdio>
#include <vector>

#include "mantissa/report/quantity.h"
#include "mantissa/report/text_table.h"

namespace mantissa::bench {
namespace {

using nlohmann::json;
using Cells = std::vector<std::string>;

std::string formatted(const char* format, double value) {
  std::array<char, 160> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

std::string ratio_text(double ratio) {
  return formatted(ratio < 9.9995 ? "%.3f" : ratio < 99.95 ? "%.1f" : "%.0f", ratio);
}

std::string quantity_text(double value, const std::string& unit) {
  if (unit == "bytes") {
    return report::bytes_text(static_cast<int64_t>(value));
  }
  return value < 9.995e-6 ? formatted("%.0f ns", value * 1e9) : report::seconds_text(value);
}

std::string verdict_text(const json& row) {
  const bool has_stretch = row.contains("stretch");
  const std::string stretch = has_stretch ? row["stretch"]["verdict"] : "";
  if (!row.contains("bar")) {
    return has_stretch ? "stretch: " + stretch : "no bar";
  }
  const std::string verdict = row["bar"]["verdict"];
  return verdict == "pass" && stretch == "pass" ? "pass, stretch too" : verdict;
}

std::string bar_text(const json& row, const char* name) {
  return row.contains(name) ? formatted("%g", row[name]["ratio"]) : "";
}

const Cells kHeader = {"",     "ratio", "95% interval", "pairs",  "ours",
                       "peer", "bar",   "stretch",      "verdict"};

std::string row_name(const json& figure, const json& row) {
  std::string name = figure["name"];
  if (const std::string own = row["name"]; !own.empty()) {
    name += ", " + own;
  }
  if (row.contains("worst_case")) {
    name += ": " + row["worst_case"].get<std::string>();
  }
  return name;
}

std::vector<Cells> lines_of(const json& figure) {
  if (figure.contains("unavailable")) {
    return {{figure["name"], "", "", "", "", "", "", "", "unavailable"}};
  }
  std::vector<Cells> lines;
  for (const json& row : figure["rows"]) {
    Cells cells = {row_name(figure, row), ratio_text(row["ratio"]),
                   ratio_text(row["low"]) + " to " + ratio_text(row["high"]),
                   std::to_string(row["pairs"].get<int>())};
    const json& cases = figure["cases"];
    for (const char* side : {"ours", "peer"}) {
      cells.push_back(cases.size() == 1 ? quantity_text(cases[0][side]["median"], cases[0]["unit"])
                                        : "");
    }
    cells.insert(cells.end(), {bar_text(row, "bar"), bar_text(row, "stretch"), verdict_text(row)});
    lines.push_back(cells);
  }
  return lines;
}

std::string markdown_table(const std::vector<Cells>& rows) {
  const auto line = [](const Cells& cells) {
    std::string text = "|";
    for (const std::string& cell : cells) {
      text += " " + cell + (cell.empty() ? "|" : " |");
    }
    return text + "\n";
  };
  return line(rows[0]) + line(Cells(rows[0].size(), "---")) + [&] {
    std::string text;
    for (size_t i = 1; i < rows.size(); ++i) {
      text += line(rows[i]);
    }
    return text;
  }();
}

std::string joined(const json& list) {
  std::string text;
  for (const json& item : list) {
    text += (text.empty() ? "" : " ") + item.get<std::string>();
  }
  return text;
}

std::vector<std::string> machine_lines(const json& run) {
  const json& machine = run["machine"];
  std::string commits;
  for (const std::string commit : machine["commits"]) {
    commits += (commits.empty() ? "" : " and ") + commit.substr(0, 12);
  }
  const std::string kind = machine["class"];
  std::vector<std::string> lines = {
      machine["cpu"].get<std::string>() + "; " + std::to_string(machine["cores"].get<int>()) +
          " cores, " + std::to_string(run["threads"].get<int>()) + " threads; " +
          joined(machine["instruction_sets"]) +
          (machine["held_to_avx2"].get<bool>() ? ", held to AVX2" : "") + "; bars of class " + kind,
      "mantissa " + machine["mantissa"].get<std::string>() + " at " + commits +
          (machine["dirty"].get<bool>() ? " (changed since)" : "") + ", LibTorch " +
          machine["libtorch"].get<std::string>() + ", " + machine["compiler"].get<std::string>()};
  const json& roofline = run["roofline"];
  const json& by_threads = roofline["by_threads"];
  for (const json& speeds : by_threads) {
    const int threads = speeds["threads"];
    lines.push_back(std::to_string(threads) + (threads == 1 ? " thread: " : " threads: ") +
                    formatted("FP32 mm %.0f GFLOP/s, ", speeds["sgemm_gflops"]) +
                    formatted("copy %.1f GB/s, ", speeds["copy_gbs"]) +
                    formatted("triad %.1f GB/s", speeds["triad_gbs"]));
  }
  const double gain = by_threads.back()["sgemm_gflops"].get<double>() /
                      by_threads.front()["sgemm_gflops"].get<double>();
  if (by_threads.size() > 1 && gain < 1.3) {
    lines.push_back(formatted(
        "FP32 mm gains %.2f by more threads: they share a core (SMT twins), or others have it",
        gain));
  }
  lines.push_back(formatted("first touch of 4 KiB %.2f us, ", roofline["page_fault_us"]) +
                  formatted("of 2 MiB %.0f us where a huge page was asked for",
                            roofline["huge_page_fault_us"]));
  if (run.contains("others_cpu_share")) {
    const double share = run["others_cpu_share"];
    lines.push_back(
        formatted("others had %.1f %% of the CPU time", share * 100) +
        (share > 0.05 ? ": the machine was busy, these figures are not to be quoted" : ""));
  }
  return lines;
}

}  // namespace

std::string render_figure(const json& figure) { return report::text_table(lines_of(figure)); }

std::string render(const json& run, Style style) {
  std::string text;
  for (const std::string& line : machine_lines(run)) {
    text += (style == Style::markdown ? "- " : "") + line + "\n";
  }
  std::vector<Cells> rows = {kHeader};
  std::vector<Cells> meanings;
  for (const json& figure : run["figures"]) {
    const auto lines = lines_of(figure);
    rows.insert(rows.end(), lines.begin(), lines.end());
    meanings.push_back(
        {figure["name"],
         figure["meaning"].get<std::string>() +
             (figure.contains("unavailable")
                  ? " (unavailable: " + figure["unavailable"].get<std::string>() + ")"
                  : "")});
  }
  if (style == Style::markdown) {
    meanings.insert(meanings.begin(), {"figure", "ours against the peer"});
    return text + "\n" + markdown_table(rows) + "\n" + markdown_table(meanings);
  }
  text += "\n" + report::text_table(rows) + "\n";
  for (const Cells& meaning : meanings) {
    text += meaning[0] + ": " + meaning[1] + "\n";
  }
  return text;
}

}  // namespace mantissa::bench
