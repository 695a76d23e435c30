#pragma once

#include <optional>

#include <nlohmann/json.hpp>

#include "bench/row.h"

namespace mantissa::bench {

CpuClass cpu_class();

/// Keeps LibTorch, its libraries and our kernels to AVX2, for a look at what a CPU without AVX-512
/// would do. To be called before any of them computes.
void hold_to_avx2();

/// Processor, instruction sets, class, versions, commit.
nlohmann::json describe_machine();

/// CPU time of the whole machine and of this process, to tell how much of it others have used.
class CpuWatch {
 public:
  CpuWatch();

  /// The share of all CPU time since the construction that neither this process and its ended
  /// children had nor was idle: other processes', and what the host kept from a virtual machine.
  /// Nothing where the system does not tell.
  std::optional<double> share_of_others() const;

 private:
  struct Times {
    double all_s = 0;
    double idle_s = 0;
    double own_s = 0;
  };
  static std::optional<Times> read();

  std::optional<Times> start_;
};

}  // namespace mantissa::bench
