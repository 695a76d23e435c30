#include "mantissa/cli/stop_signals.h"

#include <unistd.h>

#include <csignal>

namespace mantissa::cli {
namespace {

std::atomic<int> flag{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not wait for a lock");

void handle(int signal_number) {
  int expected = 0;
  if (!flag.compare_exchange_strong(expected, signal_number)) {
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
