#include "mantissa/ops/cuda/kernels.h"

#include "mantissa/ops/cuda/grid.h"
#include "mantissa/ops/cuda/passes.h"

namespace mantissa::ops::cuda {
namespace {

const char* error_text(int error) { return MANTISSA_GRID_ERROR_TEXT(error); }

}  // namespace

const Kernels& kernels() {
  static const Kernels all = {gradient_sums, gradient_conclusion, adamw_list, sgd_list,
                              count_steps,   cross_entropy,       error_text};
  return all;
}

}  // namespace mantissa::ops::cuda
