#include "mantissa/cli/stop_signals.h"

#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <ctime>

namespace mantissa::cli {
namespace {

constexpr int64_t kNanoseconds = 1'000'000'000;

std::atomic<int> flag{0};
std::atomic<int64_t> first_ns{0};  // when the first signal came; 0: not yet
static_assert(std::atomic<int64_t>::is_always_lock_free,
              "a signal handler may not wait for a lock");

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNanoseconds + now.tv_nsec;
}

// A shell, a terminal and a queue may all send the same signal, so one that follows within a second
// is the first one again; a later one is somebody who will not wait.
void handle(int signal_number) {
  const int64_t now = now_ns();
  int64_t first = 0;
  if (first_ns.compare_exchange_strong(first, now)) {
    flag.store(signal_number);
  } else if (now - first > kNanoseconds) {
    ::_exit(128 + signal_number);
  }
}

}  // namespace

const std::atomic<int>& stop_flag() {
  struct sigaction action {};
  action.sa_handler = handle;
  for (int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    ::sigaction(signal_number, &action, nullptr);
  }
  return flag;
}

}  // namespace mantissa::cli
