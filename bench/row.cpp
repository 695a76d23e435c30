#include "bench/row.h"

#include <algorithm>
#include <map>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::bench {
namespace {

// An interval wider than this says little, as do a few pairs: four are all on the better side of
// their true median by chance once in 16 times.
constexpr double kWide = 1.2;
constexpr size_t kFewPairs = 5;

std::map<std::string, Subject::Figures>& subjects() {
  static std::map<std::string, Subject::Figures> all;
  return all;
}

}  // namespace

std::string_view to_string(CpuClass cpu) {
  switch (cpu) {
    case CpuClass::other:
      return "other";
    case CpuClass::avx2:
      return "avx2";
    case CpuClass::avx512_bf16:
      return "avx512_bf16";
  }
  MANTISSA_ASSERT(false);
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::no_bar:
      return "no bar";
    case Verdict::pass:
      return "pass";
    case Verdict::falls_short:
      return "falls short";
    case Verdict::unclear:
      return "unclear";
  }
  MANTISSA_ASSERT(false);
}

Bar Bars::of(CpuClass cpu) const {
  switch (cpu) {
    case CpuClass::other:
      return {};
    case CpuClass::avx2:
      return avx2;
    case CpuClass::avx512_bf16:
      return avx512_bf16;
  }
  MANTISSA_ASSERT(false);
}

Verdict judge(const Estimate& estimate, size_t pairs, std::optional<double> bar) {
  if (!bar) {
    return Verdict::no_bar;
  }
  double doubt = estimate.high / estimate.low;
  if (pairs < kFewPairs) {
    doubt = std::max(doubt, kWide);
  }
  const bool is_near = estimate.low / doubt <= *bar && *bar <= estimate.high * doubt;
  if (doubt >= kWide && is_near) {
    return Verdict::unclear;
  }
  return estimate.low >= *bar ? Verdict::pass : Verdict::falls_short;
}

Case timed(std::string name, std::function<Contest()> make, double work, std::string work_unit) {
  return {std::move(name),
          [make = std::move(make)](const Sampling& sampling) { return measure(make(), sampling); },
          work, std::move(work_unit)};
}

Case counted(std::string name, std::function<Bytes()> count, int times) {
  const auto sample = [count = std::move(count), times](const Sampling&) {
    Samples samples;
    samples.scatters = times > 1;
    for (int i = 0; i < times; ++i) {
      const Bytes bytes = count();
      samples.ours.push_back(bytes.ours);
      samples.peer.push_back(bytes.peer);
    }
    return samples;
  };
  return {std::move(name), sample, 0, "", Unit::bytes};
}

Subject::Subject(std::string name, Figures figures) {
  const bool is_new = subjects().emplace(std::move(name), figures).second;
  MANTISSA_ASSERT(is_new);
}

std::vector<Figure> all_figures(const Setup& setup) {
  std::vector<Figure> figures;
  for (const auto& [name, figures_of] : subjects()) {
    for (Figure& figure : figures_of(setup)) {
      figures.push_back(std::move(figure));
    }
  }
  return figures;
}

}  // namespace mantissa::bench
