#pragma once

#include <map>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"

namespace mantissa::monitor {

/// What this processor can do with the threads that LibTorch has now: measured, not looked up.
/// Williams et al., Roofline: an insightful visual performance model (2009).
struct MANTISSA_API Roofline {
  std::map<numerics::Format, double> flops;  // a second, of at::mm, by the format of its factors
  double copy_bytes = 0;                     // a second, read and written, of arrays in memory

  /// The least time that an operation can take: that of its products or that of its bytes.
  double least_s(numerics::Format format, double product_flops, double bytes) const;

  /// Whether that is the one of its bytes.
  bool is_memory_bound(numerics::Format format, double product_flops, double bytes) const;
};

/// Takes about a second, and half of a GiB for a moment. Products go the way that they go in a run:
/// have the CPU kernels installed (ops::install_cpu_kernels) as it would. `formats` are of fp32,
/// bf16, fp16.
MANTISSA_API Roofline measure_roofline(const std::vector<numerics::Format>& formats);

}  // namespace mantissa::monitor
