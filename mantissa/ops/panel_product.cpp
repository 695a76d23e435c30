#include "mantissa/ops/panel_product.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/Parallel.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/block_product.h"
#include "mantissa/ops/cpu/product_kernel.h"
#include "mantissa/ops/element.h"
#include "mantissa/ops/parallel.h"

namespace mantissa::ops {
namespace {

using cpu::Side;
using numerics::Format;

cpu::Lines part_of(const cpu::Lines& whole, int64_t line, int64_t lines, int64_t k, int64_t depth) {
  const int64_t first = line * whole.line_stride + k * whole.depth_stride;
  cpu::Lines part = whole;
  part.data = static_cast<const char*>(whole.data) +
              first * (numerics::info(whole.format).storage_bits / 8);
  part.lines = lines;
  part.depth = depth;
  return part;
}

class PanelProduct final : public BlockProduct {
 public:
  PanelProduct(const cpu::Lines& a, const cpu::Lines& b, const ProductOutput& out)
      : a_(a), b_(b), out_(out) {}

  cpu::TileProduct::Layout pack_rows(int64_t row, int64_t rows, int64_t k, int64_t depth,
                                     float* to) override {
    return cpu::pack_rows(part_of(a_, row, rows, k, depth), to);
  }

  void pack_cols(int64_t col, int64_t cols, int64_t k, int64_t depth, float* strips) override {
    cpu::pack(Side::cols, part_of(b_, col, cols, k, depth), strips);
  }

  void store(float* sums, int64_t sums_row, const Block& block) override {
    const int64_t size = numerics::info(out_.format).storage_bits / 8;
    const int64_t first = block.row * out_.row_stride + block.col;
    const auto* addend = static_cast<const char*>(out_.addend);
    if (addend != nullptr) {
      addend += (block.row * out_.addend_row_stride + block.col) * size;
    }
    cpu::store({sums, sums_row, block.rows, block.cols, out_.format,
                static_cast<char*>(out_.data) + first * size, out_.row_stride, out_.alpha,
                out_.beta, addend, out_.addend_row_stride});
  }

 private:
  const cpu::Lines& a_;
  const cpu::Lines& b_;
  const ProductOutput& out_;
};

}  // namespace

void panel_product(const Factor& a, const Factor& b, int64_t m, int64_t n, int64_t k,
                   const ProductOutput& out) {
  MANTISSA_ASSERT(m > 0 && n > 0 && k > 0);
  MANTISSA_ASSERT((a.row_stride == 1 || a.col_stride == 1) &&
                  (b.row_stride == 1 || b.col_stride == 1));
  tensor::note_flops(
      a.format, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
  const cpu::Lines rows = {a.data, a.format, a.row_stride, a.col_stride, m, k};
  const cpu::Lines cols = {b.data, b.format, b.col_stride, b.row_stride, n, k};
  const std::vector<Block> blocks = blocks_of(m, n, k, at::get_num_threads());
  parallel_for(0, static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    PanelProduct product(rows, cols, out);
    for (int64_t i = begin; i < end; ++i) {
      multiply_block(product, blocks[static_cast<size_t>(i)], k);
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
      set_element(out.data, out.format, i * out.row_stride + j, sum);
    }
  }
}

}  // namespace mantissa::ops
