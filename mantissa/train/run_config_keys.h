#pragma once

#include <string>
#include <variant>
#include <vector>

#include "mantissa/train/run_config.h"

namespace mantissa::train {

// Bounds that a number must stay clear of: the nearest numbers that are allowed.
inline constexpr double kAboveZero = 5e-324;
inline constexpr double kBelowOne = 1 - 0x1p-53;
inline constexpr double kAboveOne = 1 + 0x1p-20;
inline constexpr double kUnbounded = 1e300;

using Field = std::variant<int64_t*, double*, bool*, std::string*, std::vector<std::string>*>;

/// One key of a run file: the single place that knows its name, meaning and limits.
struct Key {
  std::string name;
  std::string meaning;
  Field (*field)(RunConfig&);
  std::vector<std::string> choices = {};           // of a text; empty: any
  double minimum = -kUnbounded;                    // of a number
  double maximum = kUnbounded;                     // of a number
  bool (*has_effect)(const RunConfig&) = nullptr;  // null: always
  const char* effect = nullptr;                    // when it has: "optim.kind is \"sgd\""
  bool is_limit = false;                           // of a file, no setting makes it count nothing
};

/// Besides numbers, train.microbatch is this word: kAutoMicrobatch.
inline constexpr const char* kAuto = "auto";
inline bool can_be_auto(const Key& key) { return key.name == "train.microbatch"; }

/// In the order of the file.
MANTISSA_API const std::vector<Key>& run_config_keys();

}  // namespace mantissa::train
