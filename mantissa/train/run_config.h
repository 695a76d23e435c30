#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa::train {

struct DataConfig {
  std::string fasta;
  std::vector<std::string> validation;
  std::vector<std::string> test;
  int64_t context = 256;
  int64_t stride = 0;
  bool reverse_complement = true;
  std::string objective = "causal";
  int64_t threads = 1;
  int64_t prefetch = 4;
};

struct ModelConfig {
  std::string kind = "transformer";
  std::string size = "custom";
  int64_t layers = 4;
  int64_t width = 128;
  int64_t heads = 4;
  int64_t mlp_ratio = 4;
  double rope_base = 1e4;
  int64_t order = 2;
  int64_t positions = 0;
  int64_t short_taps = 3;
  int64_t filter_width = 64;
  int64_t filter_layers = 2;
  int64_t filter_bands = 2;
  double filter_frequency = 10;
  double slow_decay = 1.5;
  double fast_decay = 0.3;
  double decay_target = 1e-2;
  double decay_shift = 0;
  double dropout = 0;
  std::string reverse_complement = "none";
};

/// train.microbatch = "auto": decided when the run begins (microbatch.h).
inline constexpr int64_t kAutoMicrobatch = -1;

struct TrainConfig {
  int64_t steps = 1000;
  int64_t seed = 1;
  int64_t batch = 32;
  int64_t microbatch = 0;
  std::string memory;
  int64_t eval_every = 100;
  int64_t eval_windows = 0;
  int64_t checkpoint_every = 0;
  int64_t keep = 2;
  int64_t patience = 0;
  int64_t max_skips = 25;
  bool explain_skips = true;
  int64_t gradient_statistics_every = 0;
  int64_t time_split_every = 50;
  int64_t threads = 0;
  std::string allocator = "caching";
  std::string recompute = "none";
  double loss_weight = 1.0;
};

struct OptimConfig {
  std::string kind = "adamw";
  double lr = 1e-3;
  std::string schedule = "cosine";
  int64_t warmup = 0;
  double min_lr = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double momentum = 0.9;
  double weight_decay = 0.1;
  double clip = 1.0;
  std::string masters = "fp32";
  std::string moments = "fp32";
  double ema = 0.0;
  bool ema_warmup = false;
};

struct PrecisionConfig {
  std::string compute = "fp32";
  std::string policy = "torch-fixed";
  std::string param = "auto";
};

struct ScaleConfig {
  std::string kind = "auto";
  double initial = 65536.0;
  double growth = 2.0;
  double backoff = 0.5;
  int64_t growth_interval = 2000;
  double floor = 1.0;
  double ceiling = 0.0;
  int64_t growth_delay = 0;
  int64_t hysteresis = 1;
  int64_t regrowth_interval = 0;
};

/// `2GB`, `40GiB`: a number and B, kB, MB, GB, TB, KiB, MiB or GiB. Nothing where it is none.
MANTISSA_API std::optional<int64_t> parse_bytes(const std::string& text);

/// All that decides a run, as a value: one TOML file, `section.key`. Every key, its default and
/// its meaning: `describe_keys()`.
struct RunConfig {
  DataConfig data;
  ModelConfig model;
  TrainConfig train;
  OptimConfig optim;
  PrecisionConfig precision;
  ScaleConfig scale;

  /// The scale kind with `auto` decided: dynamic for fp16, none for the others.
  MANTISSA_API std::string scale_kind() const;

  /// Sequences of one forward pass: train.microbatch, or train.batch when that is 0 or not decided.
  int64_t microbatch() const { return train.microbatch > 0 ? train.microbatch : train.batch; }

  /// train.memory; nothing where it is empty.
  MANTISSA_API std::optional<int64_t> memory_bytes() const;
};

/// One `key=value` of the command line; the value is TOML, or a bare word for a text.
struct Setting {
  std::string key;
  std::string value;
};

/// Splits at the first `=`. Throws InvalidArgument when there is none.
MANTISSA_API Setting parse_setting(const std::string& text);

/// Reads a run file and applies `settings` over it. Throws InvalidArgument, with file and line, for
/// an unknown key (with the nearest valid one), a value of the wrong type or out of range, and a
/// key that has no effect beside the others; but a setting may take its effect from a key of the
/// file. Relative paths in the file are relative to its folder,
/// those in `settings` to the current one; the result holds absolute ones.
MANTISSA_API RunConfig load_run_config(const std::filesystem::path& file,
                                       const std::vector<Setting>& settings);

/// The run of each alternative, whose settings come on top of `settings`. A key is to have an
/// effect in one of the runs: scale.initial may be set for those of which only fp16 is scaled.
MANTISSA_API std::vector<RunConfig> load_run_configs(
    const std::filesystem::path& file, const std::vector<Setting>& settings,
    const std::vector<std::vector<Setting>>& alternatives);

/// The whole configuration as a run file that `load_run_config` reads back to the same value.
MANTISSA_API std::string to_toml(const RunConfig& config);

/// Every key with its type, default and meaning, one a line: `mantissa train --help-keys`.
MANTISSA_API std::string describe_keys();

}  // namespace mantissa::train
