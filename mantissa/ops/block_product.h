#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/ops/cpu/product_kernel.h"

namespace mantissa::ops {

struct Block {  // of the result
  int64_t row;
  int64_t rows;
  int64_t col;
  int64_t cols;
};

/// A product of two matrices in FP32 that come in parts and whose result goes in parts: wherever
/// the numbers lie, and in whatever format, they are packed as cpu/product_kernel.h has it.
class BlockProduct {
 public:
  BlockProduct() = default;
  BlockProduct(const BlockProduct&) = delete;
  BlockProduct& operator=(const BlockProduct&) = delete;
  virtual ~BlockProduct() = default;

  /// Rows of the left factor, its columns `k` to `k + depth`, in the layout that is returned:
  /// strips or lines.
  virtual cpu::TileProduct::Layout pack_rows(int64_t row, int64_t rows, int64_t k, int64_t depth,
                                             float* to) = 0;

  /// Columns of the right factor, its rows `k` to `k + depth`, in strips.
  virtual void pack_cols(int64_t col, int64_t cols, int64_t k, int64_t depth, float* strips) = 0;

  /// Takes the sums of a block, `sums_row` numbers apart, and may change them.
  virtual void store(float* sums, int64_t sums_row, const Block& block) = 0;
};

/// Terms that are added up in order, by fused multiply-adds; the sums of such parts are then added
/// in order.
inline constexpr int64_t kProductDepth = 512;

/// The block of a product whose sums have `k` terms each. A thread keeps 8 MiB at most for it.
void multiply_block(BlockProduct& product, const Block& block, int64_t k);

/// An m x n result in about as many blocks as `threads`, fewer where it is small.
std::vector<Block> blocks_of(int64_t m, int64_t n, int64_t k, int64_t threads);

}  // namespace mantissa::ops
