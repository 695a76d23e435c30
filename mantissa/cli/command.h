#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace mantissa::cli {

// Exit codes, the same for every command.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;
inline constexpr int kGateNotMet = 3;
inline constexpr int kSavedRunAgain = 75;  // EX_TEMPFAIL of sysexits.h: interrupted, state saved

/// For CLI::Option::check.
inline std::string refuse_empty_folder(const std::string& text) {
  return text.empty() ? "is empty; name a folder" : "";
}

/// Each adds one subcommand, whose callback does the work and may set `exit_code`, also to that of
/// a failure before it throws.
void add_train(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);
void add_score(CLI::App& app, int& exit_code);
void add_compare(CLI::App& app, int& exit_code);
void add_policy(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_lint(CLI::App& app, int& exit_code);
void add_numerics(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
void add_report(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_why(CLI::App& app, int& exit_code);

}  // namespace mantissa::cli
