#include "mantissa/ops/block_product.h"

#include <algorithm>
#include <limits>

#include "mantissa/ops/cpu/product_kernel.h"
#include "mantissa/ops/scratch.h"

namespace mantissa::ops {
namespace {

// Sizes of what is worked on at once, for caches of 32 KiB and 512 KiB or more.
constexpr int64_t kPanelCols = 512;
constexpr int64_t kPanelDepth = kProductDepth * 3;
constexpr int64_t kPanelRows = 2048;  // of sums over more than kPanelDepth
constexpr int64_t kTileRows = 120;    // of the left factor
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

struct Workspace {
  Scratch a;
  Scratch b;
  Scratch sums;
};

Workspace& workspace() {
  static thread_local Workspace instance;
  return instance;
}

/// One block under way.
class Multiplication {
 public:
  Multiplication(BlockProduct& product, const Block& block, int64_t k)
      : product_(product), block_(block), k_(k) {}

  void run() {
    const int64_t most_cols = even_part(block_.cols, kPanelCols, registers_.cols);
    const int64_t most_depth = even_part(k_, kPanelDepth, kProductDepth);
    const int64_t most_rows =
        even_part(block_.rows, k_ > kPanelDepth ? kPanelRows : block_.rows, registers_.rows);
    tile_rows_ = even_part(most_rows, kTileRows, registers_.rows);
    Workspace& space = workspace();
    a_tile_ = space.a.of_size(tile_rows_ * cpu::kLineStep + cpu::kPackingSlack);
    b_panel_ = space.b.of_size(most_cols * std::min(k_, most_depth) + cpu::kPackingSlack);
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

  void pack_b() {
    for (int64_t k = 0; k < depth_; k += kProductDepth) {
      product_.pack_cols(col_, cols_, k_begin_ + k, part_depth(k), part_of_b(k));
    }
  }

  void multiply(int64_t panel_row, int64_t panel_rows) {
    const int64_t sums_row = round_up(cols_, registers_.cols);
    for (int64_t tile = 0; tile < panel_rows; tile += tile_rows_) {
      const int64_t row = block_.row + panel_row + tile;
      const int64_t rows = std::min(tile_rows_, panel_rows - tile);
      float* sums = sums_ + (k_ > kPanelDepth ? tile * sums_row : 0);
      for (int64_t k = 0; k < depth_; k += kProductDepth) {
        const int64_t depth = part_depth(k);
        const auto layout = product_.pack_rows(row, rows, k_begin_ + k, depth, a_tile_);
        cpu::multiply({a_tile_, registers_.rows * depth, part_of_b(k), registers_.cols * depth,
                       sums, sums_row, rows, cols_, depth, k_begin_ + k > 0, layout});
      }
      if (k_begin_ + depth_ == k_) {
        product_.store(sums, sums_row, {row, rows, col_, cols_});
      }
    }
  }

  const cpu::RegisterBlock registers_ = cpu::register_block();
  BlockProduct& product_;
  const Block block_;
  const int64_t k_;
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

}  // namespace

void multiply_block(BlockProduct& product, const Block& block, int64_t k) {
  Multiplication(product, block, k).run();
}

// Each thread packs its own factors: nothing is shared and nobody waits. The grid with the least
// work for a thread.
std::vector<Block> blocks_of(int64_t m, int64_t n, int64_t k, int64_t threads) {
  const cpu::RegisterBlock registers = cpu::register_block();
  threads = m * n * k < kParallelFrom ? 1 : threads;
  Block best = {0, m, 0, n};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t down = 1; down <= threads; ++down) {
    const int64_t rows = round_up(divide_up(m, down), registers.rows / 3);
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

}  // namespace mantissa::ops
