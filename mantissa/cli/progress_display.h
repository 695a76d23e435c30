#pragma once

#include <chrono>
#include <string>

#include "mantissa/record/event.h"

namespace mantissa::cli {

/// Shows a run on stderr: on a terminal one line that is rewritten, elsewhere a line every ten
/// seconds and for each validation, warning and message.
class ProgressDisplay {
 public:
  /// With a label each line begins with it, and the first comes when there is one to wait for: runs
  /// that take turns would else print more than they say.
  explicit ProgressDisplay(int64_t total_steps, std::string label = "");
  ~ProgressDisplay();

  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  void show(const record::Event& event);

 private:
  void show_step(const record::Step& step);
  void print_line(const std::string& line);

  int64_t total_steps_;
  std::string label_;
  bool is_terminal_;
  bool line_is_open_ = false;
  int64_t first_step_ = -1;  // of this process
  int64_t skipped_ = 0;
  double data_wait_s_ = 0;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace mantissa::cli
