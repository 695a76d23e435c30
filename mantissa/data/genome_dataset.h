#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/data/dataset.h"
#include "mantissa/data/masking.h"
#include "mantissa/genome/genome.h"
#include "mantissa/genome/windows.h"

namespace mantissa::data {

/// causal: the target of a position is the next token, so that a window has context + 1 bases.
/// masked: the targets are the tokens that were hidden.
enum class Objective : uint8_t { causal, masked };

MANTISSA_API std::string_view to_string(Objective objective);
/// Throws InvalidArgument with the nearest name.
MANTISSA_API Objective parse_objective(std::string_view name);

/// all: every target counts, for training. once: a base that an earlier window of the same stretch
/// has scored already is not scored again, for evaluation.
enum class Scoring : uint8_t { all, once };

struct GenomeDatasetOptions {
  int64_t context = 256;          // tokens
  std::optional<int64_t> stride;  // bases between the starts of windows; unset: context
  uint64_t min_gap = 10;          // see WindowOptions
  Objective objective = Objective::causal;
  Scoring scoring = Scoring::all;
  MaskingOptions masking;  // for Objective::masked
};

/// Windows over intervals of a genome (see genome::Windows) as tokens. Targets other than
/// A, C, G, T are never scored. With causal windows at the default stride and Scoring::once, each
/// base but the first of a stretch is scored exactly once.
class MANTISSA_API GenomeDataset : public Dataset {
 public:
  /// Throws InvalidArgument when an option is out of range or no window fits.
  GenomeDataset(std::shared_ptr<const genome::Genome> genome,
                const std::vector<genome::Interval>& intervals,
                const GenomeDatasetOptions& options);

  uint64_t size() const override { return windows_.size(); }
  int64_t context() const override { return options_.context; }

  /// Throws InvalidArgument for the reverse strand under Scoring::once, whose windows have an
  /// order.
  Position fill(const Sample& sample, std::span<int64_t> tokens,
                std::span<int64_t> targets) const override;

  const genome::Windows& windows() const { return windows_; }

 private:
  std::shared_ptr<const genome::Genome> genome_;
  GenomeDatasetOptions options_;
  genome::Windows windows_;
};

}  // namespace mantissa::data
