#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/genome/genome.h"
#include "mantissa/genome/interval.h"

namespace mantissa::genome {

struct WindowOptions {
  uint64_t length = 0;    // bases
  uint64_t stride = 0;    // bases from one window to the next
  uint64_t min_gap = 10;  // letters; NCBI's least length of a gap between the parts of a scaffold
};

/// `fresh` is the first position that the window before it does not have: scoring only from there
/// on scores each base once, however the windows overlap.
struct Window {
  Interval bases;
  uint64_t fresh = 0;
};

/// What the windows leave out.
struct Skipped {
  uint64_t gaps = 0;
  uint64_t gap_bases = 0;
  uint64_t short_pieces = 0;  // shorter than a window
  uint64_t short_piece_bases = 0;
};

/// Windows of one length over intervals. They never cross the end of an interval, nor a gap: a run
/// of at least `min_gap` letters other than A, C, G, T, which cuts an interval into pieces. Shorter
/// runs stay inside.
///
/// In each piece a window starts every `stride` bases; where the last one leaves bases uncovered,
/// another ends with the piece. Windows are computed, not stored: those of a whole human genome at
/// stride 1 take no more memory than its gaps.
class MANTISSA_API Windows {
 public:
  /// Throws InvalidArgument when no piece is as long as a window.
  Windows(const Genome& genome, const std::vector<Interval>& intervals,
          const WindowOptions& options);

  uint64_t size() const { return pieces_.back().first_window + pieces_.back().num_windows; }

  /// Throws InvalidArgument when `index` is not below size().
  Window at(uint64_t index) const;

  const Skipped& skipped() const { return skipped_; }

 private:
  struct Piece {
    Interval bases;
    uint64_t first_window;
    uint64_t num_windows;
  };

  void cut(const Genome& genome, const Interval& interval);
  void add_piece(const Interval& bases);

  WindowOptions options_;
  std::vector<Piece> pieces_;
  Skipped skipped_;
  uint64_t longest_piece_ = 0;
};

}  // namespace mantissa::genome
