#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/file.h"

namespace mantissa::record {

/// A turn of one run among several that are trained in turns; see docs/formats/record.md.
struct Slice {
  std::string arm;  // what the run differs by from those beside it: "bf16"
  int64_t seed = 0;
  double session_s = 0;  // when the process began, since 1970-01-01 UTC
  int64_t round = 0;     // of the process, from 0; runs of one round took their turns side by side
  int64_t first_step = 0;
  int64_t last_step = 0;
  double wall_s = 0;  // with all that is no step: start, validation, checkpoint
  double energy_j = std::numeric_limits<double>::quiet_NaN();  // of the machine; NaN: not measured
  std::string energy_of;                        // what counted it: `1 processor package and 2 GPUs`
  std::map<std::string, int64_t> peak_bytes;    // as in Summary, of this slice
  std::map<std::string, int64_t> peak_holders;  // likewise

  int64_t steps() const { return last_step - first_step + 1; }
};

/// One line of JSON, without its end; not measured energy is left out.
MANTISSA_API std::string to_json(const Slice& slice);

/// The inverse. Throws Corruption, which begins with `where`.
MANTISSA_API Slice slice_from_json(std::string_view line, const std::string& where);

/// The slices of a comparison, a line each, in the order they ended.
///
///     SliceJournal journal(folder / "slices.jsonl");
///     ... train a slice, its checkpoint is on the disk ...
///     journal.append(slice);
///     journal.slices();
class MANTISSA_API SliceJournal {
 public:
  /// Opens the file or makes it. A last line without its end is cut off: its writer was killed.
  /// Throws Corruption when another line is damaged, IoError when the disk says no.
  explicit SliceJournal(const std::filesystem::path& path, FileSystem& files = posix_files());

  void append(const Slice& slice);

  /// Each step of a run in one of them at most: a slice that was trained again, because its
  /// checkpoint was lost, takes the place of the one before.
  const std::vector<Slice>& slices() const { return slices_; }

 private:
  void keep(const Slice& slice);

  std::vector<Slice> slices_;
  OutputFile file_;
};

}  // namespace mantissa::record
