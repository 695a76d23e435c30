#include "bench/table.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include <gmock/gmock.h>

namespace mantissa::bench {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

json a_run() {
  return json::parse(R"({
    "machine": {"cpu": "Some CPU, AVX2", "cores": 2, "instruction_sets": ["AVX2", "FMA"],
                "held_to_avx2": false, "class": "avx2", "mantissa": "0.1.0", "commits": ["0123456789abcdef", "fedcba9876543210"], "dirty": true,
                "libtorch": "2.13.0", "compiler": "g++ 12"},
    "threads": 2,
    "roofline": {"by_threads": [
        {"threads": 1, "sgemm_gflops": 50, "copy_gbs": 10, "triad_gbs": 11},
        {"threads": 2, "sgemm_gflops": 100, "copy_gbs": 12, "triad_gbs": 13}],
      "page_fault_us": 0.5, "huge_page_fault_us": 90},
    "others_cpu_share": 0.01,
    "figures": [
      {"name": "s/one", "meaning": "x against y",
       "cases": [{"name": "c", "unit": "s", "ours": {"median": 8.03e-7}, "peer": {"median": 2e-3}}],
       "rows": [{"name": "", "ratio": 1.25, "low": 1.2, "high": 1.3, "pairs": 9,
                 "bar": {"ratio": 1.1, "verdict": "pass"},
                 "stretch": {"ratio": 1.15, "verdict": "pass"}}]},
      {"name": "s/two", "meaning": "u against v",
       "cases": [{"name": "c", "unit": "bytes", "ours": {"median": 1000}, "peer": {"median": 2500}}],
       "rows": [{"name": "worst", "worst_case": "c", "ratio": 2.5, "low": 2.5, "high": 2.5, "pairs": 1,
                 "stretch": {"ratio": 3, "verdict": "falls short"}}]},
      {"name": "s/three", "meaning": "p against q", "unavailable": "no such units"}]})");
}

TEST(Table, ALineARow) {
  const std::string text = render(a_run(), Style::text);
  EXPECT_THAT(text, HasSubstr("ratio    95% interval  pairs     ours     peer  bar  stretch"));
  EXPECT_THAT(text, HasSubstr("1.250  1.200 to 1.300      9   803 ns  2.00 ms  1.1     1.15"));
  EXPECT_THAT(text, HasSubstr("pass, stretch too"));
  EXPECT_THAT(text, HasSubstr("1.00 kB  2.50 kB"));
  EXPECT_THAT(text, HasSubstr("\ns/two, worst: c "));
  EXPECT_THAT(text, HasSubstr("stretch: falls short"));
  EXPECT_THAT(text, HasSubstr("s/three: p against q (unavailable: no such units)"));
}

TEST(Table, SaysWhatTheMachineIs) {
  const std::string text = render(a_run(), Style::text);
  EXPECT_THAT(text, HasSubstr("Some CPU, AVX2; 2 cores, 2 threads; AVX2 FMA; bars of class avx2"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "mantissa 0.1.0 at 0123456789ab and fedcba987654 (changed since), LibTorch 2.13.0"));
  EXPECT_THAT(text, HasSubstr("2 threads: FP32 mm 100 GFLOP/s, copy 12.0 GB/s, triad 13.0 GB/s"));
  EXPECT_THAT(text, HasSubstr("others had 1.0 % of the CPU time\n"));
  EXPECT_THAT(text, Not(HasSubstr("SMT")));
}

TEST(Table, SaysThatCoresAreShared) {
  json run = a_run();
  run["roofline"]["by_threads"][1]["sgemm_gflops"] = 64;
  EXPECT_THAT(render(run, Style::text), HasSubstr("FP32 mm gains 1.28 by more threads: they share "
                                                  "a core (SMT twins), or others have it\n"));
}

TEST(Table, SaysThatTheMachineWasBusy) {
  json run = a_run();
  run["others_cpu_share"] = 0.3;
  EXPECT_THAT(render(run, Style::text), HasSubstr("others had 30.0 % of the CPU time: the machine "
                                                  "was busy"));
}

TEST(Table, Markdown) {
  const std::string text = render(a_run(), Style::markdown);
  EXPECT_THAT(text, HasSubstr("| s/one | 1.250 | 1.200 to 1.300 | 9 | 803 ns | 2.00 ms | 1.1 | "
                              "1.15 | pass, stretch too |\n"));
  EXPECT_THAT(text, HasSubstr("| s/one | x against y |\n"));
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_TRUE(in) << file;
  return text.str();
}

// Nobody wrote the numbers of the documentation by hand.
TEST(Docs, TablesAreThoseOfTheResultsTheyName) {
  const std::filesystem::path root = MANTISSA_SOURCE_DIR;
  const std::string docs = text_of(root / "docs/performance.md");
  const std::regex marker("<!-- (bench/results/[^ ]+\\.json) -->\n");
  int tables = 0;
  for (std::sregex_iterator it(docs.begin(), docs.end(), marker), end; it != end; ++it, ++tables) {
    const std::string table = render(json::parse(text_of(root / (*it)[1].str())), Style::markdown);
    const size_t begin = static_cast<size_t>(it->position() + it->length());
    EXPECT_EQ(docs.substr(begin, table.size()), table)
        << "./run bench --show " << (*it)[1] << " --markdown prints what belongs there";
  }
  EXPECT_GE(tables, 1);
}

}  // namespace
}  // namespace mantissa::bench
