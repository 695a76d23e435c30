#include "mantissa/ops/panel_product.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include <ATen/Parallel.h>
#include <hwy/aligned_allocator.h>

#include "mantissa/base/error.h"
#include "mantissa/numerics/convert.h"
#include "mantissa/numerics/rounding.h"
#include "mantissa/ops/cpu/product_kernel.h"

namespace mantissa::ops {
namespace {

using cpu::Side;
using numerics::Format;

// Sizes of what is worked on at once; the result depends on kProductDepth alone.
constexpr int64_t kPanelCols = 512;  // of `b`, shared by the threads
constexpr int64_t kPanelDepth = kProductDepth * 6;
constexpr int64_t kPanelRows = 2048;  // of sums over more than kPanelDepth
constexpr int64_t kTileRows = 120;    // of `a`, packed by the thread that reads them
// Below so many multiplications the other threads cost more than they do.
constexpr int64_t kParallelFrom = int64_t{1} << 18;

int64_t divide_up(int64_t value, int64_t step) { return (value + step - 1) / step; }
int64_t round_up(int64_t value, int64_t step) { return divide_up(value, step) * step; }

// Parts of equal size, at most `most` and, but for the last, a multiple of `step`.
int64_t even_part(int64_t value, int64_t most, int64_t step) {
  return round_up(divide_up(value, divide_up(value, most)), step);
}

// `count` contiguous numbers from data[first] on, as FP32.
void widen(const void* data, Format format, int64_t first, int64_t count, float* out) {
  const auto size = static_cast<size_t>(count);
  if (format == Format::bf16 || format == Format::fp16) {
    numerics::decode(format, std::span(static_cast<const uint16_t*>(data) + first, size),
                     std::span(out, size));
    return;
  }
  const std::span values(static_cast<const float*>(data) + first, size);
  if (format == Format::tf32) {
    numerics::round_to(Format::tf32, values, std::span(out, size));
  } else {
    std::copy(values.begin(), values.end(), out);
  }
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

class Buffer {
 public:
  float* of_size(int64_t size) {
    if (size > size_) {
      memory_ = hwy::AllocateAligned<float>(static_cast<size_t>(size));
      size_ = size;
    }
    return memory_.get();
  }

 private:
  hwy::AlignedFreeUniquePtr<float[]> memory_;
  int64_t size_ = 0;
};

struct Workspace {
  Buffer a;
  Buffer b;
  Buffer tile_sums;
  Buffer sums;
};

// Kept from call to call: fresh memory of this size costs page faults.
Workspace& workspace() {
  static thread_local Workspace instance;
  return instance;
}

/// One call: its panels in turn.
class PanelProduct {
 public:
  PanelProduct(const Factor& a, const Factor& b, int64_t m, int64_t n, int64_t k,
               const ProductOutput& out)
      : a_{a.data, a.format, a.row_stride, a.col_stride, m, k},
        b_{b.data, b.format, b.col_stride, b.row_stride, n, k},
        k_(k),
        out_(out),
        is_parallel_(m * n * k >= kParallelFrom && at::get_num_threads() > 1) {
    const int64_t panel_cols = even_part(n, kPanelCols, block_.cols);
    const int64_t panel_depth = even_part(k, kPanelDepth, kProductDepth);
    const int64_t panel_rows = k > kPanelDepth ? even_part(m, kPanelRows, block_.rows) : m;
    Workspace& space = workspace();
    b_panel_ = space.b.of_size(panel_cols * std::min(k, panel_depth) + cpu::kPackingSlack);
    if (k > kPanelDepth) {
      sums_ = space.sums.of_size(panel_rows * panel_cols);
    }
    for (col_ = 0; col_ < n; col_ += panel_cols) {
      cols_ = std::min(panel_cols, n - col_);
      for (row_ = 0; row_ < m; row_ += panel_rows) {
        rows_ = std::min(panel_rows, m - row_);
        for (k_begin_ = 0; k_begin_ < k; k_begin_ += panel_depth) {
          depth_ = std::min(panel_depth, k - k_begin_);
          pack_b();
          multiply();
        }
      }
    }
  }

 private:
  template <typename Work>
  void share(int64_t count, const Work& work) const {
    if (is_parallel_) {
      at::parallel_for(0, count, 1, work);
    } else {
      work(0, count);
    }
  }

  // A panel's sum is taken in parts; one of them begins at `k` of the panel.
  int64_t part_depth(int64_t k) const { return std::min(kProductDepth, depth_ - k); }

  float* part_of_b(int64_t k) const { return b_panel_ + k * round_up(cols_, block_.cols); }

  void pack_b() const {
    const int64_t strips = divide_up(cols_, block_.cols);
    share(strips * divide_up(depth_, kProductDepth), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t k = i / strips * kProductDepth;
        const int64_t col = i % strips * block_.cols;
        cpu::pack(Side::cols,
                  part_of(b_, col_ + col, std::min(block_.cols, cols_ - col), k_begin_ + k,
                          part_depth(k)),
                  part_of_b(k) + col * part_depth(k));
      }
    });
  }

  void multiply() {
    const int64_t threads = is_parallel_ ? at::get_num_threads() : 1;
    // As many tiles for each thread.
    const int64_t tiles = round_up(divide_up(rows_, kTileRows), threads);
    const int64_t tile_rows = round_up(divide_up(rows_, tiles), block_.rows);
    share(divide_up(rows_, tile_rows), [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) {
        multiply_rows(tile * tile_rows, std::min(tile_rows, rows_ - tile * tile_rows));
      }
    });
  }

  void multiply_rows(int64_t row, int64_t rows) const {
    Workspace& space = workspace();
    const int64_t sums_row = round_up(cols_, block_.cols);
    float* a = space.a.of_size(round_up(rows, block_.rows) * std::min(depth_, kProductDepth) +
                               cpu::kPackingSlack);
    float* sums =
        sums_ != nullptr ? sums_ + row * sums_row : space.tile_sums.of_size(rows * sums_row);
    for (int64_t k = 0; k < depth_; k += kProductDepth) {
      const int64_t depth = part_depth(k);
      cpu::pack(Side::rows, part_of(a_, row_ + row, rows, k_begin_ + k, depth), a);
      cpu::multiply({a, part_of_b(k), sums, sums_row, rows, cols_, depth, k_begin_ + k > 0});
    }
    if (k_begin_ + depth_ == k_) {
      for (int64_t i = 0; i < rows; ++i) {
        store(sums + i * sums_row, row_ + row + i);
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
      std::array<float, kPanelCols> addend;
      widen(out_.addend, out_.format, row * out_.addend_row_stride + col_, cols_, addend.data());
      for (int64_t j = 0; j < cols_; ++j) {
        sums[j] += out_.beta * addend[j];
      }
    }
    const int64_t first = row * out_.row_stride + col_;
    const auto size = static_cast<size_t>(cols_);
    if (out_.format == Format::fp32) {
      std::copy_n(sums, size, static_cast<float*>(out_.data) + first);
    } else {
      numerics::encode(out_.format, std::span<const float>(sums, size),
                       std::span(static_cast<uint16_t*>(out_.data) + first, size));
    }
  }

  const cpu::RegisterBlock block_ = cpu::register_block();
  const cpu::Lines a_;
  const cpu::Lines b_;
  const int64_t k_;
  const ProductOutput& out_;
  const bool is_parallel_;
  float* b_panel_ = nullptr;
  float* sums_ = nullptr;  // of the panel, where they are added up in parts
  // The panel under way.
  int64_t col_ = 0;
  int64_t cols_ = 0;
  int64_t row_ = 0;
  int64_t rows_ = 0;
  int64_t k_begin_ = 0;
  int64_t depth_ = 0;
};

float element(const void* data, Format format, int64_t index) {
  float value = 0;
  widen(data, format, index, 1, &value);
  return value;
}

}  // namespace

void panel_product(const Factor& a, const Factor& b, int64_t m, int64_t n, int64_t k,
                   const ProductOutput& out) {
  MANTISSA_ASSERT(m > 0 && n > 0 && k > 0);
  MANTISSA_ASSERT((a.row_stride == 1 || a.col_stride == 1) &&
                  (b.row_stride == 1 || b.col_stride == 1));
  const PanelProduct product(a, b, m, n, k, out);
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
