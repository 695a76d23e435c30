#include "mantissa/ops/panel_product.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>

#include "mantissa/base/error.h"
#include "mantissa/numerics/rounding.h"
#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/ops/cpu/product_kernel.h"
#include "mantissa/ops/scratch.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

using cpu::Side;
using numerics::Format;

// Sizes of what is worked on at once, for caches of 32 KiB and 512 KiB or more; the result depends
// on kProductDepth alone.
constexpr int64_t kPanelCols = 512;  // of `b`
constexpr int64_t kPanelDepth = kProductDepth * 3;
constexpr int64_t kPanelRows = 2048;  // of sums over more than kPanelDepth
constexpr int64_t kTileRows = 120;    // of `a`
// What packing a number costs, in multiplications.
constexpr int64_t kPackingCost = 25;
// Below so many multiplications the other threads cost more than they do.
constexpr int64_t kParallelFrom = int64_t{1} << 18;

int64_t divide_up(int64_t value, int64_t step) { return (value + step - 1) / step; }
int64_t round_up(int64_t value, int64_t step) { return divide_up(value, step) * step; }

// Parts of equal size, at most `most` and, but for the last, a multiple of `step`.
int64_t even_part(int64_t value, int64_t most, int64_t step) {
  return round_up(divide_up(value, divide_up(value, most)), step);
}

cpu::Lines part_of(const cpu::Lines& whole, int64_t line, int64_t lines, int64_t k, int64_t depth) {
  const int64_t first = line * whole.line_stride + k * whole.depth_stride;
  cpu::Lines part = whole;
  part.data = static_cast<const char*>(whole.data) +
              first * (numerics::info(whole.format).storage_bits / 8);
  part.lines = lines;
  part.depth = depth;
  return part;
}

struct Workspace {
  Scratch a;
  Scratch b;
  Scratch sums;
};

Workspace& workspace() {
  static thread_local Workspace instance;
  return instance;
}

struct Product {
  cpu::Lines a;
  cpu::Lines b;
  ProductOutput out;
};

struct Block {  // of the result
  int64_t row;
  int64_t rows;
  int64_t col;
  int64_t cols;
};

/// A thread's part of a product.
class BlockProduct {
 public:
  BlockProduct(const Product& product, const Block& block)
      : a_(product.a), b_(product.b), k_(product.a.depth), out_(product.out), block_(block) {}

  void run() {
    const int64_t most_cols = even_part(block_.cols, kPanelCols, registers_.cols);
    const int64_t most_depth = even_part(k_, kPanelDepth, kProductDepth);
    const int64_t most_rows =
        even_part(block_.rows, k_ > kPanelDepth ? kPanelRows : block_.rows, registers_.rows);
    tile_rows_ = even_part(most_rows, kTileRows, registers_.rows);
    Workspace& space = workspace();
    const int64_t packed_depth = std::min(k_, kProductDepth);
    a_tile_ = space.a.of_size(tile_rows_ * packed_depth + cpu::kPackingSlack);
    b_panel_ = space.b.of_size(most_cols * std::min(k_, most_depth));
    sums_ = space.sums.of_size((k_ > kPanelDepth ? most_rows : tile_rows_) * most_cols);
    for (int64_t col = 0; col < block_.cols; col += most_cols) {
      col_ = block_.col + col;
      cols_ = std::min(most_cols, block_.cols - col);
      for (int64_t row = 0; row < block_.rows; row += most_rows) {
        for (k_begin_ = 0; k_begin_ < k_; k_begin_ += most_depth) {
          depth_ = std::min(most_depth, k_ - k_begin_);
          pack_b();
          multiply(row, std::min(most_rows, block_.rows - row));
        }
      }
    }
  }

 private:
  // A panel's sum is taken in parts; one of them begins at `k` of the panel.
  int64_t part_depth(int64_t k) const { return std::min(kProductDepth, depth_ - k); }
  float* part_of_b(int64_t k) const { return b_panel_ + k * round_up(cols_, registers_.cols); }

  void pack_b() const {
    for (int64_t k = 0; k < depth_; k += kProductDepth) {
      cpu::pack(Side::cols, part_of(b_, col_, cols_, k_begin_ + k, part_depth(k)), part_of_b(k));
    }
  }

  void multiply(int64_t panel_row, int64_t panel_rows) const {
    const int64_t sums_row = round_up(cols_, registers_.cols);
    for (int64_t tile = 0; tile < panel_rows; tile += tile_rows_) {
      const int64_t row = block_.row + panel_row + tile;
      const int64_t rows = std::min(tile_rows_, panel_rows - tile);
      float* sums = sums_ + (k_ > kPanelDepth ? tile * sums_row : 0);
      for (int64_t k = 0; k < depth_; k += kProductDepth) {
        const int64_t depth = part_depth(k);
        cpu::pack(Side::rows, part_of(a_, row, rows, k_begin_ + k, depth), a_tile_);
        cpu::multiply({a_tile_, registers_.rows * depth, part_of_b(k), registers_.cols * depth,
                       sums, sums_row, rows, cols_, depth, k_begin_ + k > 0});
      }
      if (k_begin_ + depth_ == k_) {
        for (int64_t i = 0; i < rows; ++i) {
          store(sums + i * sums_row, row + i);
        }
      }
    }
  }

  void store(float* sums, int64_t row) const {
    if (out_.alpha != 1) {
      for (int64_t j = 0; j < cols_; ++j) {
        sums[j] *= out_.alpha;
      }
    }
    if (out_.beta != 0) {
      std::array<float, kPanelCols> buffer;
      const float* addend = cpu::widen(out_.addend, tensor::dtype_of(out_.format),
                                       row * out_.addend_row_stride + col_, cols_, buffer.data());
      for (int64_t j = 0; j < cols_; ++j) {
        sums[j] += out_.beta * addend[j];
      }
    }
    const int64_t first = row * out_.row_stride + col_;
    cpu::narrow(sums, out_.data, tensor::dtype_of(out_.format), first, cols_);
  }

  const cpu::RegisterBlock registers_ = cpu::register_block();
  const cpu::Lines& a_;
  const cpu::Lines& b_;
  const int64_t k_;
  const ProductOutput& out_;
  const Block block_;
  int64_t tile_rows_ = 0;
  float* a_tile_ = nullptr;
  float* b_panel_ = nullptr;
  float* sums_ = nullptr;  // of a tile, or of all rows of the panel where its depth is in parts
  // The panel under way.
  int64_t col_ = 0;
  int64_t cols_ = 0;
  int64_t k_begin_ = 0;
  int64_t depth_ = 0;
};

// Into about as many blocks as there are threads, each packing its own factors: nothing is shared
// and nobody waits. The grid with the least work for a thread.
std::vector<Block> blocks_of(int64_t m, int64_t n, int64_t k) {
  const cpu::RegisterBlock registers = cpu::register_block();
  const int64_t threads = m * n * k < kParallelFrom ? 1 : at::get_num_threads();
  Block best = {0, m, 0, n};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t down = 1; down <= threads; ++down) {
    const int64_t rows = round_up(divide_up(m, down), registers.rows);
    const int64_t cols = round_up(divide_up(n, threads / down), registers.cols);
    const int64_t work = rows * cols + kPackingCost * (rows * divide_up(cols, kPanelCols) + cols);
    if (work < least) {
      least = work;
      best = {0, rows, 0, cols};
    }
  }
  std::vector<Block> blocks;
  for (int64_t row = 0; row < m; row += best.rows) {
    for (int64_t col = 0; col < n; col += best.cols) {
      blocks.push_back({row, std::min(best.rows, m - row), col, std::min(best.cols, n - col)});
    }
  }
  return blocks;
}

float element(const void* data, Format format, int64_t index) {
  if (format == Format::fp32 || format == Format::tf32) {
    return numerics::round_to(format, static_cast<const float*>(data)[index]);
  }
  return numerics::decode(format, static_cast<const uint16_t*>(data)[index]);
}

}  // namespace

void panel_product(const Factor& a, const Factor& b, int64_t m, int64_t n, int64_t k,
                   const ProductOutput& out) {
  MANTISSA_ASSERT(m > 0 && n > 0 && k > 0);
  MANTISSA_ASSERT((a.row_stride == 1 || a.col_stride == 1) &&
                  (b.row_stride == 1 || b.col_stride == 1));
  const Product product = {{a.data, a.format, a.row_stride, a.col_stride, m, k},
                           {b.data, b.format, b.col_stride, b.row_stride, n, k},
                           out};
  const std::vector<Block> blocks = blocks_of(m, n, k);
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      BlockProduct(product, blocks[static_cast<size_t>(i)]).run();
    }
  });
}

void panel_product_reference(const Factor& a, const Factor& b, int64_t m, int64_t n, int64_t k,
                             const ProductOutput& out) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t begin = 0; begin < k; begin += kProductDepth) {
        float part = 0;
        for (int64_t l = begin; l < std::min(k, begin + kProductDepth); ++l) {
          part = std::fma(element(a.data, a.format, i * a.row_stride + l * a.col_stride),
                          element(b.data, b.format, l * b.row_stride + j * b.col_stride), part);
        }
        sum = begin == 0 ? part : sum + part;
      }
      if (out.alpha != 1) {
        sum *= out.alpha;
      }
      if (out.beta != 0) {
        sum += out.beta * element(out.addend, out.format, i * out.addend_row_stride + j);
      }
      const int64_t index = i * out.row_stride + j;
      if (out.format == Format::fp32) {
        static_cast<float*>(out.data)[index] = sum;
      } else {
        static_cast<uint16_t*>(out.data)[index] =
            static_cast<uint16_t>(numerics::encode(out.format, sum));
      }
    }
  }
}

}  // namespace mantissa::ops
