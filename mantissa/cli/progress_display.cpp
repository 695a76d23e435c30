#include "mantissa/cli/progress_display.h"

#include <unistd.h>

#include <iostream>
#include <utility>

#include "mantissa/report/progress_line.h"

namespace mantissa::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kTerminalInterval = std::chrono::milliseconds(200);
constexpr auto kPlainInterval = std::chrono::seconds(10);

}  // namespace

ProgressDisplay::ProgressDisplay(int64_t total_steps, std::string label)
    : total_steps_(total_steps),
      label_(std::move(label)),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      shown_(label_.empty() ? Clock::time_point() : start_) {}

ProgressDisplay::~ProgressDisplay() {
  if (line_is_open_) {
    std::cerr << "\n";
  }
}

void ProgressDisplay::print_line(const std::string& line) {
  if (line_is_open_) {
    std::cerr << "\r\033[K";
    line_is_open_ = false;
  }
  std::cerr << line << "\n";
}

void ProgressDisplay::show_step(const record::Step& step) {
  const Clock::time_point now = Clock::now();
  if (first_step_ < 0) {
    first_step_ = step.step;
    start_ = now - std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(step.step_time_s));
  }
  skipped_ += step.skipped ? 1 : 0;
  data_wait_s_ += step.data_wait_s;
  const bool is_last = step.step == total_steps_ && label_.empty();
  if (!is_last && now - shown_ < (is_terminal_ ? Clock::duration(kTerminalInterval)
                                               : Clock::duration(kPlainInterval))) {
    return;
  }
  shown_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const auto done = static_cast<double>(step.step - first_step_ + 1);
  report::ProgressContext context;
  context.total_steps = total_steps_;
  context.skipped = skipped_;
  context.seconds_left = elapsed / done * static_cast<double>(total_steps_ - step.step);
  context.data_wait_s = data_wait_s_;
  const std::string line = label_ + report::progress_line(step, context);
  if (is_terminal_) {
    std::cerr << "\r\033[K" << line << std::flush;
    line_is_open_ = true;
  } else {
    print_line(line);
  }
}

void ProgressDisplay::show(const record::Event& event) {
  if (const auto* step = std::get_if<record::Step>(&event)) {
    show_step(*step);
  } else if (const auto* evaluation = std::get_if<record::Evaluation>(&event)) {
    print_line(label_ + report::evaluation_line(*evaluation));
  } else if (const auto* message = std::get_if<record::Message>(&event)) {
    const bool is_warning = message->level == record::Level::warning;
    print_line((is_warning ? "mantissa: warning: " : "mantissa: ") + label_ + message->text);
  }
}

}  // namespace mantissa::cli
