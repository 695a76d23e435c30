#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/base/file.h"

namespace mantissa::tensor {

/// The name of a dtype in the format, such as `BF16`. Throws InvalidArgument, beginning with
/// `where`, for a dtype that it does not have.
MANTISSA_API std::string safetensors_dtype(at::ScalarType dtype, const std::string& where);

/// xxh3 of the bytes of a safetensors file, computed on their way.
struct SafetensorsDigest {
  int64_t size_bytes = 0;
  uint64_t xxh3 = 0;                             // of the whole file
  std::map<std::string, uint64_t> tensors_xxh3;  // of each tensor's bytes

  bool operator==(const SafetensorsDigest&) const = default;
};

struct Safetensors {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;
  SafetensorsDigest digest;
};

/// Writes a file in the format of huggingface/safetensors, which Python's `safetensors` opens, and
/// syncs it. The file must not exist; when writing fails, none is left. Dtypes: double, float,
/// half, bfloat16, float8_e4m3fn, float8_e5m2, signed integers, uint8, bool; others throw
/// InvalidArgument. At most one tensor is copied at a time, and only if it is not contiguous or not
/// on the CPU, which waits for its device.
MANTISSA_API SafetensorsDigest write_safetensors(
    const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors,
    const std::map<std::string, std::string>& metadata = {}, FileSystem& files = posix_files());

/// Reads such a file into CPU tensors, each with a storage of its own. The file is not trusted:
/// whatever its bytes are, the result is tensors or Corruption, and no more memory than the file
/// has bytes is taken for tensors.
MANTISSA_API Safetensors read_safetensors(const std::filesystem::path& path,
                                          FileSystem& files = posix_files());

}  // namespace mantissa::tensor
