#include "mantissa/genome/windows.h"

#include <algorithm>

#include "mantissa/base/error.h"

namespace mantissa::genome {

Windows::Windows(const Genome& genome, const std::vector<Interval>& intervals,
                 const WindowOptions& options)
    : options_(options) {
  MANTISSA_CHECK(options.length > 0, InvalidArgument, "windows: length 0; valid: 1 or more bases");
  MANTISSA_CHECK(options.stride > 0, InvalidArgument, "windows: stride 0; valid: 1 or more bases");
  MANTISSA_CHECK(options.min_gap > 0, InvalidArgument, "windows: min_gap 0; valid: 1 or more");
  for (const Interval& interval : intervals) {
    cut(genome, interval);
  }
  MANTISSA_CHECK(!pieces_.empty(), InvalidArgument, "windows: the longest stretch without a gap (",
                 options.min_gap, " or more N or other letters than A, C, G and T) has ",
                 longest_piece_, " bases, a window needs ", options.length,
                 longest_piece_ == 0 ? "; give a sequence whose bases are known"
                                     : "; use a shorter context or a longer sequence");
}

void Windows::cut(const Genome& genome, const Interval& interval) {
  Interval piece{interval.contig, interval.begin, interval.begin};
  const std::vector<Genome::Run>& runs = genome.unknown_runs(interval.contig);
  auto run = std::partition_point(runs.begin(), runs.end(),
                                  [&](const Genome::Run& r) { return r.end <= interval.begin; });
  while (run != runs.end() && run->begin < interval.end) {
    // Runs of different letters which touch are one stretch without a known base.
    uint64_t end = run->end;
    const uint64_t begin = std::max(run->begin, interval.begin);
    for (++run; run != runs.end() && run->begin == end; ++run) {
      end = run->end;
    }
    end = std::min(end, interval.end);
    if (end - begin < options_.min_gap) {
      continue;
    }
    ++skipped_.gaps;
    skipped_.gap_bases += end - begin;
    piece.end = begin;
    add_piece(piece);
    piece.begin = end;
  }
  piece.end = interval.end;
  add_piece(piece);
}

void Windows::add_piece(const Interval& bases) {
  longest_piece_ = std::max(longest_piece_, bases.size());
  if (bases.size() < options_.length) {
    skipped_.short_pieces += bases.size() > 0 ? 1 : 0;
    skipped_.short_piece_bases += bases.size();
    return;
  }
  const uint64_t room = bases.size() - options_.length;
  const uint64_t last_end = room / options_.stride * options_.stride + options_.length;
  const uint64_t count = room / options_.stride + 1 + (last_end < bases.size() ? 1 : 0);
  pieces_.push_back({bases, pieces_.empty() ? 0 : size(), count});
}

Window Windows::at(uint64_t index) const {
  MANTISSA_CHECK(index < size(), InvalidArgument, "windows: window ", index, " of ", size(),
                 "; valid: 0 to ", size() - 1);
  const auto after = std::partition_point(pieces_.begin(), pieces_.end(), [&](const Piece& piece) {
    return piece.first_window <= index;
  });
  const Piece& piece = *(after - 1);
  const auto start_of = [&](uint64_t window) {
    return std::min(piece.bases.begin + window * options_.stride,
                    piece.bases.end - options_.length);
  };
  const uint64_t window = index - piece.first_window;
  const uint64_t begin = start_of(window);
  const uint64_t fresh =
      window == 0 ? begin : std::max(begin, start_of(window - 1) + options_.length);
  return {{piece.bases.contig, begin, begin + options_.length}, fresh};
}

}  // namespace mantissa::genome
