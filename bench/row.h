#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measure.h"

namespace mantissa::bench {

/// Bars differ between CPUs that multiply 16-bit numbers and those that do not: AVX-512 without
/// BF16 units counts as avx2.
enum class CpuClass : uint8_t { other, avx2, avx512_bf16 };

std::string_view to_string(CpuClass cpu);

/// What a ratio is asked to be at least.
struct Bar {
  std::optional<double> least;
  std::optional<double> stretch;
};

struct Bars {
  Bar avx2;
  Bar avx512_bf16;

  Bar of(CpuClass cpu) const;
};

/// A line of the table: one number made of the cases of a figure.
struct Row {
  std::string name;  // within the figure; empty where that has one row
  Summary summary = Summary::worst;
  Bars bars = {};
};

/// `pass` and `falls short` are said of the lower end of the interval. `unclear`: the pairs scatter
/// too much to tell, as on a busy machine.
enum class Verdict : uint8_t { no_bar, pass, falls_short, unclear };

std::string_view to_string(Verdict verdict);

/// `pairs`: of the case that has fewest. Fewer than five tell something only where the bar is far.
Verdict judge(const Estimate& estimate, size_t pairs, std::optional<double> bar);

enum class Unit : uint8_t { seconds, bytes };

/// One comparison of ours with a peer.
struct Case {
  std::string name;
  std::function<Samples(const Sampling&)> measure;  // makes what it needs, and lets it go
  double work = 0;                                  // of one operation, for a rate; 0: none
  std::string work_unit = {};                       // such as FLOP: a rate is in GFLOP/s
  Unit unit = Unit::seconds;
};

/// A case of times. `make` makes the tensors that the actions work on, so that those of one case
/// live at a time.
Case timed(std::string name, std::function<Contest()> make, double work = 0,
           std::string work_unit = "");

struct Bytes {
  double ours;
  double peer;
};

/// A case of bytes, counted so often: once where each count is the same.
Case counted(std::string name, std::function<Bytes()> count, int times = 1);

/// Something measured against something.
struct Figure {
  std::string name;     // subject/what
  std::string meaning;  // "A against B"
  std::vector<Case> cases = {};
  std::vector<Row> rows = {{}};
  double share = 1;              // of the time that a figure gets
  std::string unavailable = {};  // why nothing can be measured here; empty: it can
};

/// What figures may ask about the run.
struct Setup {
  CpuClass cpu = CpuClass::other;
  std::string peer_python = {};  // of the environment with Python's torch; empty: not asked for
};

/// A file of figures makes itself known by a static Subject. Figures come in the order of the names
/// of their subjects.
class Subject {
 public:
  using Figures = std::vector<Figure> (*)(const Setup&);

  Subject(std::string name, Figures figures);
};

std::vector<Figure> all_figures(const Setup& setup);

}  // namespace mantissa::bench
