#pragma once

#include <cstdint>

#include "mantissa/numerics/format.h"

namespace mantissa::ops::cpu {

/// The block of the result that a processor holds in registers while it adds up products.
struct RegisterBlock {
  int64_t rows;
  int64_t cols;
};

RegisterBlock register_block();

/// c = a b, or c += a b: rows x depth times depth x cols, all FP32.
///
/// `b` lies in strips of register_block().cols columns, `b_strip` numbers apart: (k, j) of a strip
/// at [k * strip cols + j], aligned to 64 bytes. `a` lies as `a_layout` says. The last strips are
/// whole, with any numbers beyond rows and cols, and so are the rows of `c`.
///
/// Each element of c is the sum over k in order, from 0, by fused multiply-adds where the processor
/// has them; it is then stored or added to what is there.
struct TileProduct {
  enum class Layout : uint8_t {
    strips,  // of register_block().rows rows, `a_strip` apart: (i, k) at [k * strip rows + i]
    lines,   // (i, k) at [i * kLineStep + k]
    across,  // one strip such as those of `b`: (i, k) at [k * strip cols + i]
    along,   // the same the other way round: (i, k) at [i * strip cols + k]
  };

  const float* a;
  int64_t a_strip;
  const float* b;
  int64_t b_strip;
  float* c;
  int64_t c_row;
  int64_t rows;
  int64_t cols;
  int64_t depth;
  bool add;
  Layout a_layout = Layout::strips;
};

void multiply(const TileProduct& tile);

/// From a line to the next: more than kProductDepth of block_product.h, and no power of two, which
/// would have all lines in one set of the cache.
inline constexpr int64_t kLineStep = 528;

enum class Side : uint8_t { rows, cols };  // of the result

/// Lines of a factor, rows of `a` or columns of `b`, which run along the sum: number k of line i is
/// data[i * line_stride + k * depth_stride], where one of the strides is 1. bf16 and fp16 are
/// patterns; fp32 are floats, tf32 floats that are rounded when read.
struct Lines {
  const void* data;
  numerics::Format format;
  int64_t line_stride;
  int64_t depth_stride;
  int64_t lines;
  int64_t depth;
};

/// The lines as FP32 in strips, as multiply() takes them; what the last strip lacks is zeros. Up to
/// kPackingSlack numbers behind the last strip are written too.
void pack(Side side, const Lines& from, float* strips);

inline constexpr int64_t kPackingSlack = 64;

/// Rows of `a` as FP32, in the layout that costs least: lines of less than kLineStep numbers where
/// those are contiguous, else strips.
TileProduct::Layout pack_rows(const Lines& from, float* to);

/// alpha * sums + beta * addend, each operation rounded to FP32, rounded once more into rows of
/// bf16, fp16 or fp32 numbers. `addend` is not read when beta is 0.
struct TileOutput {
  const float* sums;
  int64_t sums_row;
  int64_t rows;
  int64_t cols;
  numerics::Format format;  // of `out` and `addend`
  void* out;
  int64_t out_row;
  float alpha;
  float beta;
  const void* addend;
  int64_t addend_row;
};

void store(const TileOutput& output);

}  // namespace mantissa::ops::cpu
