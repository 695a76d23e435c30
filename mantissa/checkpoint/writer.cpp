#include "mantissa/checkpoint/writer.h"

#include <algorithm>
#include <optional>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/checkpoint/layout.h"
#include "mantissa/checkpoint/manifest.h"
#include "mantissa/checkpoint/reader.h"
#include "mantissa/tensor/safetensors.h"

namespace mantissa::checkpoint {
namespace {

using std::filesystem::path;

void remove_leftovers(const path& directory, FileSystem& files) {
  for (const std::string& name : list_folder(directory, files)) {
    if (is_temporary(name)) {
      remove_tree(directory / name, files);
    }
  }
}

// Said before anything is written, and with the whole sum: the system would name the last piece.
void check_space(const path& directory, const Checkpoint& checkpoint, FileSystem& files) {
  int64_t needed = 0;
  for (const auto& [name, tensor] : checkpoint.state.tensors()) {
    needed += static_cast<int64_t>(tensor.nbytes());
  }
  const int64_t free = files.free_bytes(directory);
  MANTISSA_CHECK(free < 0 || free >= needed, IoError, "checkpoint ",
                 (directory / step_name(checkpoint.step)).string(), ": needs ", needed, " bytes, ",
                 free, " are free; free some space or choose another folder");
}

int64_t write_synced(const path& where, std::string_view bytes, FileSystem& files) {
  OutputFile file(where, FileSystem::Open::create, files);
  file.write(bytes);
  file.sync();
  file.close();
  return file.size_bytes();
}

int64_t write_folder(const path& folder, const Checkpoint& checkpoint, FileSystem& files) {
  const std::string where = concat("checkpoint ", folder.string());
  const auto& tensors = checkpoint.state.tensors();
  const tensor::SafetensorsDigest digest =
      tensor::write_safetensors(folder / kTensorsFile, tensors, {{"format", "pt"}}, files);

  Manifest manifest{.step = checkpoint.step,
                    .environment = checkpoint.environment,
                    .scalars = checkpoint.state.scalars(),
                    .tensors = {},
                    .tensors_file = {digest.size_bytes, digest.xxh3}};
  for (const auto& [name, tensor] : tensors) {
    manifest.tensors[name] = {tensor::safetensors_dtype(tensor.scalar_type(), where),
                              tensor.sizes().vec(), digest.tensors_xxh3.at(name)};
  }
  const std::string text = format_manifest(manifest, where);
  int64_t size = digest.size_bytes;
  size += write_synced(folder / kManifestFile, text, files);
  size += write_synced(folder / kManifestHashFile, hex(xxh3(text)) + "\n", files);
  sync_folder(folder, files);
  return size;
}

// Gives the verified folder its name. Between the two renames of a replacement the earlier one is
// found under its `.old-` name.
void publish(const path& temporary, const path& folder, FileSystem& files) {
  const path directory = folder_of(folder);
  if (path_exists(folder, files)) {
    std::string old = temporary.filename().string();
    old.replace(old.find(".tmp-"), 5, ".old-");
    rename_path(folder, directory / old, files);
  }
  rename_path(temporary, folder, files);
  sync_folder(directory, files);
}

void remove_earlier(const path& directory, int64_t step, int64_t keep_last, FileSystem& files) {
  const std::optional<int64_t> best = read_pointer(directory, kBest, files);
  int64_t num_steps = 0;  // up to `step`, seen so far
  int64_t last = -1;
  for (const Candidate& candidate : candidates(directory, files)) {
    if (candidate.step > step) {
      continue;
    }
    const bool is_first = candidate.step != last;  // an old one of the same step comes second
    num_steps += is_first ? 1 : 0;
    last = candidate.step;
    if (is_first && (num_steps <= keep_last || candidate.step == best)) {
      continue;
    }
    // Renamed first, durably: a folder of which a part is gone must not look like a checkpoint.
    const path removed = temporary_beside(directory / step_name(candidate.step));
    rename_path(directory / candidate.name, removed, files);
    sync_folder(directory, files);
    remove_tree(removed, files);
  }
}

}  // namespace

Saved write(const path& directory, const Checkpoint& checkpoint, const WriteOptions& options,
            FileSystem& files) {
  MANTISSA_CHECK(options.keep_last >= 1, InvalidArgument, "checkpoint ", directory.string(),
                 ": keep_last is ", options.keep_last, "; it must be at least 1");
  MANTISSA_CHECK(checkpoint.step >= 0, InvalidArgument, "checkpoint ", directory.string(),
                 ": step is ", checkpoint.step, "; it must not be negative");
  create_folders(directory, files);
  remove_leftovers(directory, files);
  check_space(directory, checkpoint, files);

  Saved saved;
  saved.folder = directory / step_name(checkpoint.step);
  const path temporary = temporary_beside(saved.folder);
  try {
    create_folders(temporary, files);
    saved.size_bytes = write_folder(temporary, checkpoint, files);
    verify(temporary, files);
    publish(temporary, saved.folder, files);
  } catch (...) {
    // A full disk must not stay full of halves; the reason that is thrown is the first one.
    try {
      remove_tree(temporary, files);
    } catch (const Error&) {
    }
    throw;
  }
  write_pointer(directory, kLatest, checkpoint.step, files);
  try {
    remove_earlier(directory, checkpoint.step, options.keep_last, files);
  } catch (const Error& error) {
    saved.messages.push_back(concat("earlier checkpoints were not removed: ", error.what()));
  }
  return saved;
}

void mark_best(const path& directory, int64_t step, FileSystem& files) {
  const std::vector<Candidate> all = candidates(directory, files);
  const bool found =
      std::any_of(all.begin(), all.end(), [step](const Candidate& c) { return c.step == step; });
  MANTISSA_CHECK(found, InvalidArgument, "checkpoint ", directory.string(), ": there is no ",
                 step_name(step), " to be the best; mark one that was written");
  write_pointer(directory, kBest, step, files);
}

}  // namespace mantissa::checkpoint
