#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace mantissa::bench {

/// A program that answers each line on its stdin with one on its stdout. It ends, and is waited
/// for, with the object.
class PeerProcess {
 public:
  explicit PeerProcess(const std::vector<std::string>& command);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  /// Throws Error when the program has ended instead; its stderr says why.
  std::string ask(const std::string& line);

 private:
  std::string name_;
  pid_t process_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

}  // namespace mantissa::bench
