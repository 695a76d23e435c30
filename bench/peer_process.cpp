#include "bench/peer_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "mantissa/base/error.h"

namespace mantissa::bench {

PeerProcess::PeerProcess(const std::vector<std::string>& command) : name_(command.at(0)) {
  std::array<int, 2> to{};
  std::array<int, 2> from{};
  MANTISSA_CHECK(pipe2(to.data(), O_CLOEXEC) == 0 && pipe2(from.data(), O_CLOEXEC) == 0, IoError,
                 "bench: no pipe to ", name_, "; close some files");
  std::signal(SIGPIPE, SIG_IGN);  // an ended peer is an answer that does not come
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const int error =
      posix_spawnp(&process_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  if (error != 0) {
    close(to[1]);
    close(from[0]);
    throw IoError(name_ + ": cannot be started; name a program that can");
  }
  to_ = fdopen(to[1], "w");
  from_ = fdopen(from[0], "r");
}

PeerProcess::~PeerProcess() {
  std::fclose(to_);  // it reads the end, and ends
  std::fclose(from_);
  waitpid(process_, nullptr, 0);
}

std::string PeerProcess::ask(const std::string& line) {
  std::fprintf(to_, "%s\n", line.c_str());
  std::fflush(to_);
  std::string answer;
  for (int c = std::fgetc(from_); c != '\n'; c = std::fgetc(from_)) {
    MANTISSA_CHECK(c != EOF, Error, name_, " ended instead of answering \"", line,
                   "\"; its messages are above");
    answer += static_cast<char>(c);
  }
  return answer;
}

}  // namespace mantissa::bench
