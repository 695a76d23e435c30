#include "mantissa/checkpoint/reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/checkpoint/layout.h"
#include "mantissa/checkpoint/manifest.h"
#include "mantissa/tensor/safetensors.h"

namespace mantissa::checkpoint {
namespace {

using std::filesystem::path;

constexpr const char* kAdvice = "; the checkpoint is damaged, use another";

std::string where_of(const path& folder) { return concat("checkpoint ", folder.string()); }

Manifest read_manifest(const path& folder, FileSystem& files) {
  const std::string where = where_of(folder);
  const std::string text = read_file(folder / kManifestFile, files);
  const std::string expected = read_file(folder / kManifestHashFile, files);
  const std::string found = hex(xxh3(text)) + "\n";
  MANTISSA_CHECK(found == expected, Corruption, where, ": ", kManifestFile, " has xxh3 ",
                 hex(xxh3(text)), ", ", kManifestHashFile, " says otherwise", kAdvice);
  Manifest manifest = parse_manifest(text, where);
  const std::optional<int64_t> step = step_in_name(folder.filename().string());
  MANTISSA_CHECK(!step || *step == manifest.step, Corruption, where, ": holds step ", manifest.step,
                 ", not that of its name; rename it to ", step_name(manifest.step));
  return manifest;
}

void check_size(const FileRecord& record, int64_t found, const std::string& where) {
  MANTISSA_CHECK(found == record.size_bytes, Corruption, where, ": ", kTensorsFile, " has ", found,
                 " bytes, the manifest says ", record.size_bytes, kAdvice);
}

void check_hash(const FileRecord& record, uint64_t found, const std::string& where) {
  MANTISSA_CHECK(found == record.xxh3, Corruption, where, ": ", kTensorsFile, " has xxh3 ",
                 hex(found), ", the manifest says ", hex(record.xxh3), kAdvice);
}

void check_tensors(const Manifest& manifest, const tensor::Safetensors& read,
                   const std::string& where) {
  for (const auto& [name, record] : manifest.tensors) {
    const auto found = read.tensors.find(name);
    MANTISSA_CHECK(found != read.tensors.end(), Corruption, where, ": tensor \"", name,
                   "\" is missing", kAdvice);
    const TensorRecord have = {tensor::safetensors_dtype(found->second.scalar_type(), where),
                               found->second.sizes().vec(), read.digest.tensors_xxh3.at(name)};
    MANTISSA_CHECK(have.xxh3 == record.xxh3, Corruption, where, ": tensor \"", name, "\" has xxh3 ",
                   hex(have.xxh3), ", the manifest says ", hex(record.xxh3), kAdvice);
    MANTISSA_CHECK(have == record, Corruption, where, ": tensor \"", name, "\" is ", have.dtype,
                   " ", found->second.sizes(), ", the manifest says otherwise", kAdvice);
  }
  MANTISSA_CHECK(read.tensors.size() == manifest.tensors.size(), Corruption, where, ": has ",
                 read.tensors.size(), " tensors, the manifest says ", manifest.tensors.size(),
                 kAdvice);
}

void require_any(const std::vector<Candidate>& all, const path& directory) {
  MANTISSA_CHECK(!all.empty(), IoError, where_of(directory),
                 ": there is no checkpoint; train until one is saved, or give another folder");
}

Loaded read_step(const path& directory, const char* pointer, int64_t step, FileSystem& files) {
  const std::vector<Candidate> all = candidates(directory, files);
  const auto found =
      std::find_if(all.begin(), all.end(), [step](const Candidate& c) { return c.step == step; });
  MANTISSA_CHECK(found != all.end(), Corruption, where_of(directory / step_name(step)),
                 ": is missing, although \"", pointer, "\" names it; use another checkpoint");
  return read(directory / found->name, files);
}

// Runs `attempt`; when it throws, keeps the reason and returns nothing.
template <typename Attempt>
std::optional<Loaded> try_read(std::vector<std::string>& reasons, Attempt attempt) {
  try {
    return attempt();
  } catch (const Error& error) {
    // The one that the pointer names is tried twice.
    if (std::find(reasons.begin(), reasons.end(), error.what()) == reasons.end()) {
      reasons.emplace_back(error.what());
    }
    return std::nullopt;
  }
}

}  // namespace

Loaded read(const path& folder, FileSystem& files) {
  const std::string where = where_of(folder);
  Manifest manifest = read_manifest(folder, files);
  const path tensors_path = folder / kTensorsFile;
  check_size(manifest.tensors_file, InputFile(tensors_path, files).size_bytes(), where);
  const tensor::Safetensors tensors = tensor::read_safetensors(tensors_path, files);
  check_tensors(manifest, tensors, where);
  check_hash(manifest.tensors_file, tensors.digest.xxh3, where);

  Loaded loaded;
  loaded.folder = folder;
  loaded.checkpoint.step = manifest.step;
  loaded.checkpoint.environment = std::move(manifest.environment);
  for (const auto& [name, value] : tensors.tensors) {
    loaded.checkpoint.state.set(name, value);
  }
  for (const auto& [name, scalar] : manifest.scalars) {
    MANTISSA_CHECK(!loaded.checkpoint.state.contains(name), Corruption, where, ": \"", name,
                   "\" is a tensor and a scalar", kAdvice);
    std::visit([&, key = name](const auto& value) { loaded.checkpoint.state.set(key, value); },
               scalar);
  }
  return loaded;
}

void verify(const path& folder, FileSystem& files) {
  const std::string where = where_of(folder);
  const Manifest manifest = read_manifest(folder, files);
  InputFile file(folder / kTensorsFile, files);
  check_size(manifest.tensors_file, file.size_bytes(), where);
  std::vector<char> buffer(size_t{1} << 20);
  Xxh3 hash;
  for (int64_t position = 0; position < file.size_bytes();) {
    const int64_t size =
        std::min<int64_t>(file.size_bytes() - position, static_cast<int64_t>(buffer.size()));
    file.read(buffer.data(), static_cast<size_t>(size), position);
    hash.update(buffer.data(), static_cast<size_t>(size));
    position += size;
  }
  check_hash(manifest.tensors_file, hash.value(), where);
}

Loaded read_latest(const path& directory, FileSystem& files) {
  std::vector<std::string> reasons;
  std::optional<Loaded> loaded = try_read(reasons, [&] {
    const std::optional<int64_t> step = read_pointer(directory, kLatest, files);
    MANTISSA_CHECK(step, IoError, where_of(directory), ": has no file \"", kLatest,
                   "\"; taking the latest step");
    return read_step(directory, kLatest, *step, files);
  });
  if (loaded) {
    return std::move(*loaded);
  }
  const std::vector<Candidate> all = candidates(directory, files);
  require_any(all, directory);
  for (const Candidate& candidate : all) {
    loaded = try_read(reasons, [&] { return read(directory / candidate.name, files); });
    if (loaded) {
      loaded->messages = std::move(reasons);
      return std::move(*loaded);
    }
  }
  std::string joined;
  for (const std::string& reason : reasons) {
    joined += (joined.empty() ? "" : " | ") + reason;
  }
  throw Corruption(concat(where_of(directory), ": none of ", all.size(), " is whole (", joined,
                          "); restore one from a copy or begin a new run"));
}

Loaded read_best(const path& directory, FileSystem& files) {
  const std::optional<int64_t> step = read_pointer(directory, kBest, files);
  if (!step) {
    require_any(candidates(directory, files), directory);
    throw IoError(concat(where_of(directory),
                         ": no checkpoint was marked as the best; use the latest (mantissa eval "
                         "--checkpoint latest)"));
  }
  return read_step(directory, kBest, *step, files);
}

bool has_checkpoint(const path& directory, FileSystem& files) {
  return !candidates(directory, files).empty();
}

}  // namespace mantissa::checkpoint
