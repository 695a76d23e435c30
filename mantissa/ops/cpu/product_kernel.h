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
/// `a` lies in strips of register_block().rows rows, each `depth` x strip rows: element (i, k) of a
/// strip at [k * strip rows + i]. `b` lies in strips of register_block().cols columns: (k, j) of a
/// strip at [k * strip cols + j], aligned to 64 bytes. The last strips are whole, with any finite
/// numbers beyond rows and cols.
///
/// Each element of c is the sum over k in order, from 0, by fused multiply-adds where the processor
/// has them; it is then stored or added to what is there.
struct TileProduct {
  const float* a;
  const float* b;
  float* c;
  int64_t c_row;
  int64_t rows;
  int64_t cols;
  int64_t depth;
  bool add;
};

void multiply(const TileProduct& tile);

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

}  // namespace mantissa::ops::cpu
