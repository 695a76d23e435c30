// mantissa_bench: how fast this machine is, and how fast mantissa is on it. See
// docs/performance.md.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <regex>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench/figure_run.h"
#include "bench/join.h"
#include "bench/machine.h"
#include "bench/memory.h"
#include "bench/roofline.h"
#include "bench/row.h"
#include "bench/table.h"
#include "mantissa/base/error.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::bench {
namespace {

struct Options {
  std::string only;
  std::string json_file;
  std::string growth;
  std::string kernels;
  std::vector<std::string> show;
  double seconds = 20;
  int threads = 0;
  bool list = false;
  bool peer = false;
  bool avx2 = false;
  bool markdown = false;
};

std::string peer_python() {
  const char* python = std::getenv("MANTISSA_PEER_PYTHON");
  MANTISSA_CHECK(python != nullptr, InvalidArgument,
                 "bench: --peer needs MANTISSA_PEER_PYTHON, a Python with torch; `./run bench "
                 "--peer` sets it");
  return python;
}

std::vector<Figure> chosen_figures(const Options& options, const Setup& setup) {
  std::vector<Figure> figures = all_figures(setup);
  const std::regex only(options.only);
  std::erase_if(figures,
                [&](const Figure& figure) { return !std::regex_search(figure.name, only); });
  MANTISSA_CHECK(!figures.empty(), InvalidArgument, "bench: --only ", options.only,
                 " matches no figure; see --list");
  return figures;
}

nlohmann::json read_json(const std::string& file) {
  std::ifstream in(file);
  MANTISSA_CHECK(in, IoError, file, ": cannot be read; name a file that --json wrote");
  return nlohmann::json::parse(in);
}

// Nothing without a file.
void write_json(const std::string& file, const nlohmann::json& run) {
  if (file.empty()) {
    return;
  }
  std::ofstream out(file);
  out << run.dump(1) << "\n";
  MANTISSA_CHECK(out.flush(), IoError, file,
                 ": cannot be written; name a file in a folder that exists");
}

nlohmann::json run(const Options& options, const Setup& setup, const std::vector<Figure>& figures) {
  ops::install_cpu_kernels();
  const int threads = options.threads > 0 ? options.threads : at::get_num_threads();
  const CpuWatch watch;
  nlohmann::json result = {{"machine", describe_machine()}, {"threads", threads}};
  result["roofline"] = measure_roofline(threads);
  const RunOptions run_options{.cpu = setup.cpu, .seconds = options.seconds};
  result["seconds_a_figure"] = run_options.seconds;
  result["bootstrap_seed"] = run_options.seed;
  for (const Figure& figure : figures) {
    result["figures"].push_back(run_figure(figure, run_options));
    std::cerr << render_figure(result["figures"].back());
  }
  if (const auto share = watch.share_of_others()) {
    result["others_cpu_share"] = *share;
  }
  return result;
}

int run_command(int argc, char** argv) {
  Options options;
  CLI::App app("Measures this machine, then mantissa on it, against LibTorch in the same run.",
               "./run bench");
  app.add_option("--only", options.only,
                 "figures whose name has a match of this regular expression");
  app.add_option("--json", options.json_file, "write everything to this file");
  app.add_option("--seconds", options.seconds, "time for a figure; some take a multiple of it")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "of LibTorch and mantissa (default: LibTorch's choice)")
      ->check(CLI::PositiveNumber);
  app.add_flag("--peer", options.peer, "also against Python's torch");
  app.add_flag("--avx2", options.avx2, "hold both sides to AVX2");
  app.add_option("--kernels", options.kernels,
                 "of products, convolutions and attention: ours, stock, or automatic (default)");
  app.add_flag("--list", options.list, "list the figures, and exit");
  app.add_option(
      "--show", options.show,
      "show files that --json wrote as one table, and exit; with --json, write them as one file");
  app.add_flag("--markdown", options.markdown, "the table in Markdown");
  app.add_option("--growth", options.growth)->group("");  // what memory/growth calls
  CLI11_PARSE(app, argc, argv);

  if (!options.growth.empty()) {
    ops::install_cpu_kernels();
    answer_growth(options.growth);
    return 0;
  }
  const Style style = options.markdown ? Style::markdown : Style::text;
  if (!options.show.empty()) {
    std::vector<nlohmann::json> runs;
    for (const std::string& file : options.show) {
      runs.push_back(read_json(file));
    }
    const nlohmann::json joined = join_runs(std::move(runs));
    write_json(options.json_file, joined);
    std::cout << render(joined, style);
    return 0;
  }
  if (options.avx2) {
    hold_to_avx2();
  }
  if (!options.kernels.empty()) {
    ops::set_cpu_kernels(ops::parse_cpu_kernels(options.kernels));
  }
  Setup setup{.cpu = cpu_class()};
  if (options.peer) {
    setup.peer_python = peer_python();
  }
  const std::vector<Figure> figures = chosen_figures(options, setup);
  if (options.list) {
    for (const Figure& figure : figures) {
      std::cout << figure.name << ": " << figure.meaning << "\n";
    }
    return 0;
  }
  const nlohmann::json result = run(options, setup, figures);
  write_json(options.json_file, result);
  std::cout << render(result, style);
  const nlohmann::json& measured = result["figures"];
  return std::any_of(measured.begin(), measured.end(),
                     [](const nlohmann::json& figure) { return figure.contains("failed"); });
}

}  // namespace
}  // namespace mantissa::bench

int main(int argc, char** argv) {
  try {
    // As `mantissa train` has it, for both sides.
    mantissa::tensor::memory::install_counting_allocator();
    mantissa::tensor::memory::set_allocator(mantissa::tensor::memory::Allocator::caching);
    return mantissa::bench::run_command(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "mantissa_bench: " << error.what() << "\n";
    return 1;
  }
}
