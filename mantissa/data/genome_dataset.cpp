#include "mantissa/data/genome_dataset.h"

#include <algorithm>
#include <string>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::data {
namespace {

genome::Windows make_windows(const std::shared_ptr<const genome::Genome>& genome,
                             const std::vector<genome::Interval>& intervals,
                             const GenomeDatasetOptions& options) {
  MANTISSA_CHECK(genome != nullptr, InvalidArgument, "dataset: no genome; open one first");
  MANTISSA_CHECK(options.context > 0, InvalidArgument, "dataset: context ", options.context,
                 "; valid: 1 or more tokens");
  const int64_t stride = options.stride.value_or(options.context);
  MANTISSA_CHECK(stride > 0, InvalidArgument, "dataset: stride ", stride,
                 "; valid: 1 or more bases");
  if (options.objective == Objective::masked) {
    require_valid(options.masking);
  }
  const int64_t next = options.objective == Objective::causal ? 1 : 0;
  return {*genome,
          intervals,
          {.length = static_cast<uint64_t>(options.context + next),
           .stride = static_cast<uint64_t>(stride),
           .min_gap = options.min_gap}};
}

}  // namespace

std::string_view to_string(Objective objective) {
  return objective == Objective::causal ? "causal" : "masked";
}

Objective parse_objective(std::string_view name) {
  for (const Objective objective : {Objective::causal, Objective::masked}) {
    if (name == to_string(objective)) {
      return objective;
    }
  }
  throw InvalidArgument(
      concat("dataset: unknown objective \"", name, "\"", suggestion(name, {"causal", "masked"})));
}

GenomeDataset::GenomeDataset(std::shared_ptr<const genome::Genome> genome,
                             const std::vector<genome::Interval>& intervals,
                             const GenomeDatasetOptions& options)
    : genome_(std::move(genome)),
      options_(options),
      windows_(make_windows(genome_, intervals, options)) {}

Position GenomeDataset::fill(const Sample& sample, std::span<int64_t> tokens,
                             std::span<int64_t> targets) const {
  const auto context = static_cast<size_t>(options_.context);
  MANTISSA_CHECK(tokens.size() == context && targets.size() == context, InvalidArgument,
                 "fill: room for ", tokens.size(), " tokens and ", targets.size(),
                 " targets; the context is ", context);
  MANTISSA_CHECK(
      options_.scoring == Scoring::all || sample.strand == genome::Strand::forward, InvalidArgument,
      "fill: windows whose bases are scored once are read forward; valid: Strand::forward");
  const genome::Window window = windows_.at(sample.window);
  std::vector<uint8_t> letters(window.bases.size());
  genome_->fetch(window.bases, letters);
  if (sample.strand == genome::Strand::reverse) {
    genome::reverse_complement_(letters);
  }
  const std::span<const uint8_t> all(letters);
  encode(all.first(context), tokens);
  if (options_.objective == Objective::masked) {
    mask_(tokens, targets, sample.number, options_.masking);
  } else {
    encode(all.last(context), targets);
    std::replace_if(
        targets.begin(), targets.end(), [](int64_t token) { return !is_base(token); }, kIgnore);
  }
  if (options_.scoring == Scoring::once) {
    const uint64_t first_target = window.bases.end - context;
    const uint64_t stale = std::max(window.fresh, first_target) - first_target;
    std::fill_n(targets.begin(), stale, kIgnore);
  }
  return {window.bases, sample.strand};
}

}  // namespace mantissa::data
