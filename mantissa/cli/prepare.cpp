#include "mantissa/cli/prepare.h"

#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::cli {

void prepare_process() {
  tensor::memory::install_counting_allocator();
  ops::install_cpu_kernels();
}

}  // namespace mantissa::cli
