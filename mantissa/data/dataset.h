#pragma once

#include <cstdint>
#include <span>

#include "mantissa/base/api.h"
#include "mantissa/data/sampler.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/genome/alphabet.h"
#include "mantissa/genome/interval.h"

namespace mantissa::data {

/// Where a row of a batch comes from.
struct Position {
  genome::Interval bases;
  genome::Strand strand = genome::Strand::forward;

  bool operator==(const Position&) const = default;
};

/// Numbered windows, each of which can be turned into tokens and targets.
class MANTISSA_API Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset();

  /// Windows.
  virtual uint64_t size() const = 0;

  /// Tokens of a window, T.
  virtual int64_t context() const = 0;

  /// Writes the T tokens and the T targets of a sample; a target is a token or kIgnore.
  /// Called by several threads at once.
  virtual Position fill(const Sample& sample, std::span<int64_t> tokens,
                        std::span<int64_t> targets) const = 0;
};

}  // namespace mantissa::data
