#pragma once

#include <cstdint>
#include <span>

#include "mantissa/base/api.h"

namespace mantissa::data {

/// The corruption of masked language models (Devlin et al., "BERT", 2019).
struct MaskingOptions {
  uint64_t seed = 0;
  double chosen = 0.15;   // share of the bases to predict
  double masked = 0.8;    // share of the chosen that become [MASK]
  double replaced = 0.1;  // share of the chosen that become a random base; the rest stays
};

/// Throws InvalidArgument when a share is out of range.
MANTISSA_API void require_valid(const MaskingOptions& options);

/// Chooses among the tokens A, C, G, T alone, corrupts the chosen in place and writes what they
/// were to `targets`, kIgnore elsewhere. A random base may be the true one, as in BERT. All is a
/// function of `options.seed` and `number`, whatever thread calls.
MANTISSA_API void mask_(std::span<int64_t> tokens, std::span<int64_t> targets, uint64_t number,
                        const MaskingOptions& options);

}  // namespace mantissa::data
