#include "mantissa/cli/prepare.h"

#include <iostream>

#include "mantissa/numerics/format.h"
#include "mantissa/ops/device_precision.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::cli {

void prepare_process() {
  tensor::memory::install_counting_allocator();
  ops::install_cpu_kernels();
  ops::set_device_precision({});
}

void tell_of_missing_units(std::string_view precision) {
  for (const ops::CpuKernelChoice& choice : ops::cpu_kernel_choices()) {
    if (numerics::to_string(choice.format) == precision &&
        choice.kernels == ops::CpuKernels::ours) {
      std::cerr << "mantissa: " << choice.reason << "; expect less memory, not more speed\n";
    }
  }
}

}  // namespace mantissa::cli
