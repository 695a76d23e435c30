#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/checkpoint/checkpoint.h"

namespace mantissa::checkpoint {

inline constexpr int64_t kSchema = 1;

struct TensorRecord {
  std::string dtype;  // as safetensors names it
  std::vector<int64_t> shape;
  uint64_t xxh3 = 0;  // of its bytes

  bool operator==(const TensorRecord&) const = default;
};

struct FileRecord {
  int64_t size_bytes = 0;
  uint64_t xxh3 = 0;

  bool operator==(const FileRecord&) const = default;
};

/// All of a checkpoint but the bytes of its tensors; docs/formats/checkpoint.md has the keys.
struct Manifest {
  int64_t step = 0;
  Environment environment;
  std::map<std::string, tensor::StateDict::Scalar> scalars;
  std::map<std::string, TensorRecord> tensors;
  FileRecord tensors_file;
};

/// JSON. Throws InvalidArgument, beginning with `where`, when a text is not UTF-8.
MANTISSA_API std::string format_manifest(const Manifest& manifest, const std::string& where);

/// The inverse; NaN comes back as a NaN, without its payload. Throws Corruption when the text is no
/// manifest, and Unsupported when it is of a later schema.
MANTISSA_API Manifest parse_manifest(std::string_view text, const std::string& where);

}  // namespace mantissa::checkpoint
