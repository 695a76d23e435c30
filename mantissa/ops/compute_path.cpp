#include "mantissa/ops/compute_path.h"

#include <ATen/native/Resize.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/tf32.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {

ComputePath compute_path(std::initializer_list<at::ScalarType> dtypes, CpuWork work) {
  const at::ScalarType dtype = *dtypes.begin();
  for (at::ScalarType other : dtypes) {
    if (other != dtype) {
      return ComputePath::stock;
    }
  }
  if (dtype == at::kFloat) {
    return tf32() == Tf32::on ? ComputePath::tf32 : ComputePath::stock;
  }
  return tensor::is_16bit(dtype) && widens(tensor::format_of(dtype), work) ? ComputePath::widen
                                                                           : ComputePath::stock;
}

numerics::Format factor_format(ComputePath path, at::ScalarType dtype) {
  return path == ComputePath::tf32 ? numerics::Format::tf32 : tensor::format_of(dtype);
}

at::Tensor in_lines(const at::Tensor& matrix) {
  // contiguous() would leave a matrix of one number as it is, whatever its strides.
  return matrix.stride(-1) == 1 || matrix.stride(-2) == 1
             ? matrix
             : matrix.clone(at::MemoryFormat::Contiguous);
}

at::Tensor factor(ComputePath path, const at::Tensor& tensor) {
  MANTISSA_ASSERT(path != ComputePath::stock);
  return path == ComputePath::tf32 ? round_to_tf32(tensor) : tensor.to(at::kFloat);
}

at::Tensor addend(const at::Tensor& tensor) { return tensor.to(at::kFloat); }

at::Tensor& store(const at::Tensor& result, at::Tensor& out) {
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

}  // namespace mantissa::ops
