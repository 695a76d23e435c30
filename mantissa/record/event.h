#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa::record {

/// Of the lines that this library writes; see docs/formats/record.md.
inline constexpr int64_t kSchema = 1;

struct RunStart {
  std::string config;                           // the resolved run file, TOML
  std::map<std::string, std::string> versions;  // of libraries, by name
  std::string cpu;
  int64_t resumed_from = -1;  // the step; -1: from the beginning
};

/// By parameter and by name.
using ParameterNumbers = std::map<std::string, std::map<std::string, double>>;

/// One optimizer step. `step` counts from 1: it is the number of steps done.
struct Step {
  int64_t step = 0;
  double loss = 0;  // nats per token, mean over the batch
  double bits_per_base = 0;
  double lr = 0;
  double grad_norm = 0;  // before clipping
  double scale = 1;      // of the loss
  bool skipped = false;  // a gradient was not finite; nothing was updated
  double tokens_per_s = 0;
  double step_time_s = 0;
  double data_wait_s = 0;      // of step_time_s, spent waiting for the batch
  int64_t peak_bytes = 0;      // of tensors
  ParameterNumbers gradients;  // unscaled; empty for most steps

  /// step_time_s by phase: data, forward, backward, optimizer, replay, other. They add up to it.
  std::map<std::string, double> phases = {};
};

/// On validation data.
struct Evaluation {
  int64_t step = 0;
  double bits_per_base = 0;
  double loss = 0;
  double duration_s = 0;  // 0: not told
};

struct CheckpointSaved {
  int64_t step = 0;
  std::string path;
  int64_t size_bytes = 0;
  double write_time_s = 0;
  std::map<std::string, int64_t> peak_bytes = {};    // as in Summary, of the run until then
  std::map<std::string, int64_t> peak_holders = {};  // likewise
};

enum class Level { info, warning };

struct Message {
  int64_t step = 0;  // the last one done
  Level level = Level::info;
  std::string text;
};

/// Magnitudes of the values of one kind and place, in one step.
struct ValueRange {
  std::string kind;    // activation, gradient, weight or update
  std::string scope;   // of the model
  std::string name;    // of the operation, backward node or parameter
  std::string format;  // in which they were
  int64_t count = 0;
  int64_t zeros = 0;
  int64_t nan = 0;
  int64_t positive_infinity = 0;
  int64_t negative_infinity = 0;
  double smallest = 0;  // magnitude of finite ones that are not 0
  double largest = 0;   // of finite ones
  int64_t first_exponent = 0;
  std::vector<int64_t> exponents;  // [i]: how many from 2^(first_exponent + i) to the next power
  // By format, how many of the finite ones become `zero`, `subnormal`, `overflow` by rounding to
  // it.
  std::map<std::string, std::map<std::string, int64_t>> narrow;

  bool operator==(const ValueRange&) const = default;
};

/// All values of one step.
struct Ranges {
  int64_t step = 0;
  double scale = 1;  // of the loss, and so of gradients
  std::vector<ValueRange> values;
};

/// Calls of one operation in one place and format, in one step. What it means for 16 bits is that
/// of the run: see docs/formats/record.md.
struct OperationRow {
  std::string phase;  // as in Step::phases
  std::string scope;  // of the model; numbers in it are `*`: `blocks.*.mlp`
  std::string operation;
  std::string kind;    // product, cast, view or other
  std::string format;  // of its arguments
  int64_t calls = 0;
  double time_s = 0;  // without other rows
  double flops = 0;
  double bytes = 0;
  bool eligible = false;    // 16 bits can do its work
  bool in_16_bits = false;  // it got them
  std::string reason;       // why 16 bits gave it no speed: see the above
  std::string detail;       // of the reason: the rule of the policy

  bool operator==(const OperationRow&) const = default;
};

/// Where the time of one step went, by operation too.
struct TimeSplit {
  int64_t step = 0;
  double step_time_s = 0;                // without looking
  double look_s = 0;                     // that looking took besides
  std::map<std::string, double> phases;  // of step_time_s; `casts` are none of the others
  std::vector<OperationRow> operations;  // those with the most time first
};

/// What a run came to; `mantissa train --json` prints it.
struct Summary {
  int64_t steps = 0;
  double bits_per_base = 0;  // validation
  double loss = 0;           // validation
  double markov_bits_per_base = 0;
  double step_time_s = 0;  // median
  double tokens_per_s = 0;
  std::map<std::string, int64_t> peak_bytes;      // by category
  std::map<std::string, int64_t> peak_holders;    // largest of that: "activations blocks.0.mlp"
  std::map<std::string, double> bytes_per_param;  // weights, gradients, masters, moments, ema
  double scale = 1;
  int64_t skipped_steps = 0;
  int64_t params = 0;
  int64_t seed = 0;
  std::string precision;
  std::string policy;
  std::string allocator;   // of tensors: `caching` or `system`
  std::string stopped_by;  // what ended the run: `steps`, `patience`, ...

  bool operator==(const Summary&) const = default;
};

struct RunEnd {
  Summary summary;
};

using Event =
    std::variant<RunStart, Step, Evaluation, CheckpointSaved, Message, RunEnd, Ranges, TimeSplit>;

/// A line of a record.
struct Entry {
  double time_s = 0;  // since 1970-01-01 UTC
  Event event;
};

/// One line of JSON, without its end. Numbers read back equal to the last bit; a non-finite one is
/// the string "nan", "inf" or "-inf". Bytes of a text that are not UTF-8 become U+FFFD.
MANTISSA_API std::string to_json(const Entry& entry);
MANTISSA_API std::string to_json(const Summary& summary);

/// The inverse. Keys that it does not know are passed over. Throws Corruption, which begins with
/// `where`, when the line is not such a line, and Unsupported when it is of a later schema.
MANTISSA_API Entry from_json(std::string_view line, const std::string& where = "record");

/// The step of an event; -1 for those that have none (run_start, run_end).
MANTISSA_API int64_t step_of(const Event& event);

}  // namespace mantissa::record
