#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::tensor {

/// Python's safetensors reads no longer header.
inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;  // bytes

/// What the header of a safetensors file says of one tensor.
struct SafetensorsEntry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // of its bytes, from the end of the header
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// The text of a header, padded so that the bytes of the tensors begin at a multiple of 8. Throws
/// InvalidArgument when a name is not UTF-8 or all is too long.
MANTISSA_API std::string format_safetensors_header(const SafetensorsHeader& header,
                                                   const std::string& where);

/// The inverse, which trusts nothing: throws Corruption, beginning with `where`, unless the tensors
/// fill `data_size` bytes without overlaps and holes, each as its dtype and shape want.
MANTISSA_API SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_size,
                                                        const std::string& where);

}  // namespace mantissa::tensor
