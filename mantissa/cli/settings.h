#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "mantissa/train/run_config.h"

namespace mantissa::cli {

/// What `--set` was given, then the short options that were given, as settings over a run file.
/// Throws InvalidArgument for a text without `=`.
std::vector<train::Setting> settings_of(
    const std::vector<std::string>& texts,
    std::initializer_list<std::pair<const char*, std::optional<std::string>>> short_options);

/// `--memory`, of the commands that decide a microbatch: short for train.memory.
void add_memory_option(CLI::App& command, std::optional<std::string>& memory);

}  // namespace mantissa::cli
