#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/numerics/format.h"

namespace mantissa::ops::cpu {

/// Part of a line of FP32 numbers, from `to` on: zeros, then `count` numbers of a source, the first
/// of them at `from`, then zeros.
struct Segment {
  int64_t from;
  int64_t count;
  int64_t to;
  int64_t zeros_before;
  int64_t zeros_after;
};

/// What kernels may write beyond the end of what they were asked for, and read there.
inline constexpr int64_t kWindowSlack = 64;

/// Fills a line, in segments that ascend, with numbers of a source that lie `stride` apart. bf16
/// and fp16 are patterns, fp32 floats, tf32 floats that are rounded here. The line that is filled
/// next is expected `ahead` numbers further in the source.
void fill_line(const void* source, numerics::Format format, int64_t stride, int64_t ahead,
               std::span<const Segment> segments, float* line);

/// The numbers of a vector.
int64_t vector_size();

/// Copies of vectors, in order, and then of numbers that are fewer.
struct Moves {
  struct Move {
    int32_t from;
    int32_t to;
  };
  struct Rest {
    int32_t from;
    int32_t to;
    int32_t count;
  };
  std::vector<Move> vectors;
  std::vector<Rest> rests;
};

struct Shift {
  int64_t from;
  int64_t to;
};

/// Moves all as often as there are shifts, which are added to their places.
void copy(const float* in, const Moves& moves, std::span<const Shift> shifts, float* out);

/// Rows of numbers in strips as multiply() takes them: number k of row i is at
/// i * row_stride + offsets[k].
void pack_rows_at(const void* data, numerics::Format format, int64_t row_stride, int64_t rows,
                  std::span<const int64_t> offsets, float* strips);

/// Rows of sums, `stride` numbers apart.
struct LineSums {
  float* sums;
  int64_t stride;
  int64_t rows;
  int64_t count;  // in a row
  bool add;       // to what is there, or to 0
};

/// sums[r, i] = sum of factors[r, t] * line[shifts[t] + i] over t in order, by fused multiply-adds.
/// `factors` has a row for each of sums.
void add_shifted(const float* line, std::span<const float> factors, std::span<const int64_t> shifts,
                 const LineSums& to);

struct Stretch {
  int64_t first;
  int64_t count;
};

/// dots[t] = sum of a[i] * b[shifts[t] + i] over the stretches. Number j of a stretch goes by a
/// fused multiply-add to sum j mod 16; those are added up in halves: 0 and 8, 1 and 9, ...
void dot_shifted(const float* a, const float* b, std::span<const Stretch> stretches,
                 std::span<const int64_t> shifts, float* dots);

}  // namespace mantissa::ops::cpu
