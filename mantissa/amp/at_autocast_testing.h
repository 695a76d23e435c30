#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/macros/Export.h>

// Declared here, because <ATen/autocast_mode.h> includes all of ATen.
namespace at::autocast {
TORCH_API void set_autocast_enabled(at::DeviceType device_type, bool enabled);
TORCH_API void set_autocast_dtype(at::DeviceType device_type, at::ScalarType dtype);
TORCH_API void clear_cache();
TORCH_API int increment_nesting();
TORCH_API int decrement_nesting();
}  // namespace at::autocast

namespace mantissa::amp {

/// A region of LibTorch's own autocast on CPU, for comparison.
class AtAutocast {
 public:
  explicit AtAutocast(at::ScalarType dtype = at::kBFloat16) {
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }

  ~AtAutocast() {
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }

  AtAutocast(const AtAutocast&) = delete;
  AtAutocast& operator=(const AtAutocast&) = delete;
};

}  // namespace mantissa::amp
