#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/file.h"
#include "mantissa/record/event.h"

namespace mantissa::record {

/// Writes curves that TensorBoard shows. The file can be made again from a record at any time, so
/// a resumed run replaces it:
///
///     TensorBoardWriter board(run / "events.out.tfevents.0.mantissa", time_s);
///     for (const Entry& entry : writer.kept()) board.append(entry);
class MANTISSA_API TensorBoardWriter {
 public:
  /// Replaces the file. TensorBoard looks for files whose name contains `tfevents`: another name
  /// is InvalidArgument. `time_s` is that of the start, since 1970-01-01 UTC.
  TensorBoardWriter(const std::filesystem::path& path, double time_s,
                    FileSystem& files = posix_files());

  TensorBoardWriter(TensorBoardWriter&&) noexcept = default;
  TensorBoardWriter& operator=(TensorBoardWriter&&) noexcept = default;

  /// The numbers of a step as `train/<key>` and of an evaluation as `validation/<key>`, with the
  /// keys of the record; ranges as histograms `<kind>/<scope>/<name>` of log2 of the magnitudes.
  /// Other events have no curves.
  void append(const Entry& entry);

  /// Points of several curves: tag and value. The format keeps values in FP32.
  void scalars(int64_t step, double time_s,
               const std::vector<std::pair<std::string, double>>& values);

 private:
  void histograms(const Ranges& ranges, double time_s);
  void write_summary(int64_t step, double time_s, const std::string& summary);

  OutputFile file_;
};

}  // namespace mantissa::record
