#include "mantissa/amp/argument_cast.h"

#include "mantissa/base/error.h"

namespace mantissa::amp {

at::ScalarType wider(at::ScalarType a, at::ScalarType b) {
  if (a == b) {
    return a;
  }
  const size_t size_a = c10::elementSize(a);
  const size_t size_b = c10::elementSize(b);
  if (size_a == size_b) {
    return at::kFloat;
  }
  return size_a > size_b ? a : b;
}

void WidestDtype::add(const at::Tensor& tensor) {
  if (!is_eligible(tensor)) {
    return;
  }
  const at::ScalarType dtype = tensor.scalar_type();
  MANTISSA_CHECK(policy_.widens_foreign || dtype == compute_ || dtype == at::kFloat,
                 InvalidArgument, "autocast: operation ", c10::toString(operation_.operator_name()),
                 " has an argument of ", dtype, " in a region of ", compute_,
                 "; cast it, or let the policy say foreign=widen");
  widest_ = wider(widest_.value_or(dtype), dtype);
}

}  // namespace mantissa::amp
