#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa::train {

/// The INFO fields that scoring adds to a VCF file: their names, all with one prefix, and how they
/// are declared. Values of Number=A stand for the alternatives in their order, "." where there is
/// none; a field that would have no value is left out.
struct MANTISSA_API ScoreFields {
  /// Throws InvalidArgument when the prefix is not of letters, digits and _, a letter first.
  explicit ScoreFields(std::string_view prefix);

  std::string llr;             // A, Float: the mean over both strands, nats
  std::string forward;         // A, Float
  std::string reverse;         // A, Float
  std::string fp32;            // A, Float: the mean in FP32, where it was asked for
  std::string markov;          // A, Float: the ratio of the best Markov model of the training data
  std::string kind;            // A, String: genome::AlleleKind
  std::string reason;          // A, String: genome::Unscored
  std::string consequence;     // A, String: genome::Consequence
  std::string no_alternative;  // 0, Flag: of a record whose ALT is "."
  std::string renamed;         // 0, Flag: the contig was found with "chr" put before or taken off

  /// `##INFO=...`, of all fields.
  std::vector<std::string> declarations() const;
};

}  // namespace mantissa::train
