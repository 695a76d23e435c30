#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "mantissa/base/api.h"
#include "mantissa/base/file.h"
#include "mantissa/train/variant_scorer.h"

namespace mantissa::train {

struct ScoreFileOptions {
  /// What decides the scores beside the file itself, in any form: a scoring that was begun with
  /// other settings does not go on.
  std::string settings;
  std::string description;                              // a line "##..." of the header
  uint64_t save_every = 1000;                           // records from one save to the next
  const std::atomic<int>* stop = nullptr;               // when it is not 0, save and return
  std::function<void(uint64_t records)> progress = {};  // after each record; of the whole file
  FileSystem* files = &posix_files();
};

/// Scores the records of `vcf` in their order into `out`, which appears whole or not at all.
/// Returns false when it was stopped before the end.
///
/// It writes to `<out>.part` and, every `save_every` records, how far it is to `<out>.progress`.
/// After a stop, a kill or a full disk, the same call goes on from the last save: the records are
/// the same as without. `before_rename` is called with the complete part.
///
/// InvalidArgument: `out` is there already, does not end in .vcf, .vcf.gz or .vcf.bgz (bgzip), a
/// scoring of it was begun with other settings or another input; the input declares one of the
/// fields already. IoError: what writing throws, and when another process works on the same file.
/// Corruption: a record that is none.
MANTISSA_API bool score_file(
    const std::filesystem::path& vcf, const std::filesystem::path& out, const VariantScorer& scorer,
    const ScoreFileOptions& options,
    const std::function<void(const std::filesystem::path&)>& before_rename);

}  // namespace mantissa::train
