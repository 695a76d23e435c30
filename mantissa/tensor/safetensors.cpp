#include "mantissa/tensor/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/tensor/safetensors_header.h"

// The file (github.com/huggingface/safetensors):
//   uint64 length of the header, little-endian | header, JSON in UTF-8 | bytes of the tensors
// Tensors are little-endian, row-major, one behind the other. Those of wider elements come first,
// so that each begins at a multiple of its element size.
namespace mantissa::tensor {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr int64_t kLengthBytes = 8;

std::string where_of(const std::filesystem::path& path) {
  return concat("safetensors ", path.string());
}

SafetensorsHeader layout_of(const std::map<std::string, at::Tensor>& tensors,
                            const std::map<std::string, std::string>& metadata,
                            const std::string& where) {
  SafetensorsHeader header{.metadata = metadata};
  for (const auto& [name, tensor] : tensors) {
    MANTISSA_CHECK(tensor.defined() && tensor.layout() == at::kStrided, InvalidArgument, where,
                   ": tensor \"", name, "\" is undefined or sparse; give dense tensors");
    (void)safetensors_dtype(tensor.scalar_type(), concat(where, ": tensor \"", name, "\""));
    header.entries.push_back({name, tensor.scalar_type(), tensor.sizes().vec(), 0, 0});
  }
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return c10::elementSize(a.dtype) > c10::elementSize(b.dtype);
                   });
  int64_t position = 0;
  for (SafetensorsEntry& entry : header.entries) {
    entry.begin = position;
    position += static_cast<int64_t>(tensors.at(entry.name).nbytes());
    entry.end = position;
  }
  return header;
}

// Writes to the file and to its hash.
class HashedOutput {
 public:
  explicit HashedOutput(OutputFile& file) : file_(file) {}

  void write(const void* data, size_t size) {
    file_.write(data, size);
    hash_.update(data, size);
  }

  uint64_t xxh3() const { return hash_.value(); }

 private:
  OutputFile& file_;
  Xxh3 hash_;
};

SafetensorsDigest write_all(OutputFile& file, const SafetensorsHeader& header,
                            const std::map<std::string, at::Tensor>& tensors,
                            const std::string& where) {
  const std::string text = format_safetensors_header(header, where);
  HashedOutput output(file);
  const uint64_t length = text.size();
  output.write(&length, sizeof(length));
  output.write(text.data(), text.size());
  SafetensorsDigest digest;
  for (const SafetensorsEntry& entry : header.entries) {
    const at::Tensor bytes = tensors.at(entry.name).detach().cpu().contiguous();
    const std::string_view view(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
    output.write(view.data(), view.size());
    digest.tensors_xxh3[entry.name] = xxh3(view);
  }
  file.sync();
  digest.size_bytes = file.size_bytes();
  digest.xxh3 = output.xxh3();
  file.close();
  return digest;
}

// Any other byte in a bool is undefined behaviour.
void check_bools(const at::Tensor& tensor, const std::string& name, const std::string& where) {
  const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
  const auto* bad = std::find_if(bytes, bytes + tensor.nbytes(), [](uint8_t b) { return b > 1; });
  MANTISSA_CHECK(bad == bytes + tensor.nbytes(), Corruption, where, ": tensor \"", name,
                 "\" has byte ", int{*bad}, " for a bool; the file is damaged, use another copy");
}

}  // namespace

SafetensorsDigest write_safetensors(const std::filesystem::path& path,
                                    const std::map<std::string, at::Tensor>& tensors,
                                    const std::map<std::string, std::string>& metadata,
                                    FileSystem& files) {
  const std::string where = where_of(path);
  const SafetensorsHeader header = layout_of(tensors, metadata, where);
  OutputFile file(path, FileSystem::Open::create, files);
  try {
    return write_all(file, header, tensors, where);
  } catch (...) {
    files.remove(path);
    throw;
  }
}

Safetensors read_safetensors(const std::filesystem::path& path, FileSystem& files) {
  const std::string where = where_of(path);
  InputFile file(path, files);
  const int64_t rest = file.size_bytes() - kLengthBytes;
  MANTISSA_CHECK(rest >= 0, Corruption, where, ": has ", file.size_bytes(), " bytes, at least ",
                 kLengthBytes, " are needed; it is not a safetensors file, or cut");
  uint64_t length = 0;
  file.read(&length, sizeof(length), 0);
  MANTISSA_CHECK(length <= uint64_t{kMaxSafetensorsHeader}, Corruption, where, ": a header of ",
                 length, " bytes, at most ", kMaxSafetensorsHeader,
                 " are valid; it is not a safetensors file, or damaged");
  const auto header_size = static_cast<int64_t>(length);
  MANTISSA_CHECK(header_size <= rest, Corruption, where, ": a header of ", header_size,
                 " bytes, the file has ", rest, " behind its length; it is cut, use another copy");
  std::string text(length, '\0');
  file.read(text.data(), text.size(), kLengthBytes);
  SafetensorsHeader header = parse_safetensors_header(text, rest - header_size, where);

  Safetensors result;
  Xxh3 hash;
  hash.update(&length, sizeof(length));
  hash.update(text.data(), text.size());
  for (const SafetensorsEntry& entry : header.entries) {
    const at::Tensor tensor = at::empty(entry.shape, entry.dtype);
    char* bytes = static_cast<char*>(tensor.mutable_data_ptr());
    file.read(bytes, tensor.nbytes(), kLengthBytes + header_size + entry.begin);
    hash.update(bytes, tensor.nbytes());
    if (entry.dtype == at::kBool) {
      check_bools(tensor, entry.name, where);
    }
    result.digest.tensors_xxh3[entry.name] = xxh3({bytes, tensor.nbytes()});
    result.tensors.emplace(entry.name, tensor);
  }
  result.metadata = std::move(header.metadata);
  result.digest.size_bytes = file.size_bytes();
  result.digest.xxh3 = hash.value();
  return result;
}

}  // namespace mantissa::tensor
