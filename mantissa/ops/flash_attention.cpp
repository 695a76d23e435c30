#include "mantissa/ops/flash_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "mantissa/ops/cpu/attention_kernel.h"
#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/ops/cpu/product_kernel.h"
#include "mantissa/ops/scratch.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

using cpu::Side;
using Layout = cpu::TileProduct::Layout;

// What is worked on at once, for caches of 32 KiB and 512 KiB or more: parts are packed and kept
// while the blocks of the other side go by. Sums over keys, and in backward over queries, are taken
// a block at a time.
constexpr int64_t kQueryPart = 1024;
constexpr int64_t kKeyBlock = 192;
constexpr int64_t kKeyPart = 1024;
constexpr int64_t kQueryBlock = 96;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// `count` rows of a factor from `first` on, as lines.
cpu::Lines rows_of(const Factor& factor, int64_t first, int64_t count, int64_t width) {
  return {static_cast<const char*>(factor.data) +
              first * factor.row_stride * (numerics::info(factor.format).storage_bits / 8),
          factor.format,
          factor.row_stride,
          factor.col_stride,
          count,
          width};
}

// The same rows, with their columns as lines.
cpu::Lines columns_of(const Factor& factor, int64_t first, int64_t count, int64_t width) {
  cpu::Lines lines = rows_of(factor, first, count, width);
  std::swap(lines.line_stride, lines.depth_stride);
  std::swap(lines.lines, lines.depth);
  return lines;
}

const void* mask_at(const AttentionMask& mask, int64_t query, int64_t key) {
  return static_cast<const char*>(mask.data) + (query * mask.query_stride + key * mask.key_stride) *
                                                   (numerics::info(mask.format).storage_bits / 8);
}

void store(const AttentionOutput& out, int64_t row, const float* numbers, int64_t width) {
  cpu::narrow(numbers, out.data, tensor::dtype_of(out.format), row * out.row_stride, width);
}

void store_rows(const AttentionOutput& out, int64_t first, int64_t count, const float* numbers,
                int64_t numbers_row, int64_t width) {
  for (int64_t i = 0; i < count; ++i) {
    store(out, first + i, numbers + i * numbers_row, width);
  }
}

float* zeros(Scratch& scratch, int64_t size) {
  float* numbers = scratch.of_size(size);
  std::fill_n(numbers, size, 0.0F);
  return numbers;
}

float* packed(Scratch& scratch, Side side, const cpu::Lines& lines) {
  const cpu::RegisterBlock registers = cpu::register_block();
  const int64_t step = side == Side::rows ? registers.rows : registers.cols;
  float* strips = scratch.of_size(round_up(lines.lines, step) * lines.depth + cpu::kPackingSlack);
  cpu::pack(side, lines, strips);
  return strips;
}

class Forward {
 public:
  Forward(const AttentionShape& shape, const AttentionHead& head) : shape_(shape), head_(head) {}

  void run(const AttentionOutput& out, QueryNumbers<float> logsumexp) {
    for (first_ = 0; first_ < shape_.queries; first_ += kQueryPart) {
      part_ = std::min(kQueryPart, shape_.queries - first_);
      const int64_t lanes = round_up(part_, strip_);
      Workspace& space = workspace();
      query_ = packed(space.query, Side::cols, rows_of(head_.query, first_, part_, shape_.width));
      sums_ = zeros(space.sums, lanes * row_);
      sum_ = zeros(space.sum, lanes);
      max_ = space.max.of_size(lanes);
      std::fill_n(max_, lanes, -std::numeric_limits<float>::infinity());
      scores_ = space.scores.of_size(kKeyBlock * strip_);
      const int64_t end = shape_.causal ? std::min(shape_.keys, first_ + part_) : shape_.keys;
      for (int64_t key = 0; key < end; key += kKeyBlock) {
        add_keys(key, std::min(kKeyBlock, end - key));
      }
      finish(out, logsumexp);
    }
  }

 private:
  struct Workspace {
    Scratch query, key, value, scores, mask, sums, sum, max;
  };

  static Workspace& workspace() {
    static thread_local Workspace instance;
    return instance;
  }

  void add_keys(int64_t key, int64_t keys) {
    Workspace& space = workspace();
    const float* key_strips =
        packed(space.key, Side::rows, rows_of(head_.key, key, keys, shape_.width));
    const float* value_strips =
        packed(space.value, Side::cols, columns_of(head_.value, key, keys, shape_.width));
    for (int64_t lane = 0; lane < part_; lane += strip_) {
      const int64_t query = first_ + lane;
      const int64_t queries = std::min(strip_, part_ - lane);
      const int64_t seen =
          shape_.causal ? std::clamp<int64_t>(query + queries - key, 0, keys) : keys;
      if (seen == 0) {
        continue;
      }
      cpu::multiply({key_strips, registers_.rows * shape_.width, query_ + lane * shape_.width, 0,
                     scores_, strip_, seen, strip_, shape_.width, false});
      const float* mask =
          head_.mask.data == nullptr
              ? nullptr
              : packed(space.mask, Side::cols,
                       {mask_at(head_.mask, query, key), head_.mask.format, head_.mask.query_stride,
                        head_.mask.key_stride, queries, seen});
      std::array<float, cpu::kMostStripCols> correction;
      cpu::softmax({scores_, seen, shape_.scale, mask,
                    shape_.causal ? query - key : cpu::kAllVisible, shape_.tf32, max_ + lane,
                    sum_ + lane, correction.data()});
      float* sums = sums_ + lane * row_;
      for (int64_t i = 0; i < queries; ++i) {
        if (correction[i] != 1) {
          for (int64_t j = 0; j < row_; ++j) {
            sums[i * row_ + j] *= correction[i];
          }
        }
      }
      cpu::multiply({scores_, 0, value_strips, strip_ * keys, sums, row_, queries, row_, seen, true,
                     Layout::across});
    }
  }

  void finish(const AttentionOutput& out, QueryNumbers<float> logsumexp) const {
    for (int64_t i = 0; i < part_; ++i) {
      const bool nothing_seen = sum_[i] == 0;
      float* sums = sums_ + i * row_;
      for (int64_t j = 0; j < shape_.width; ++j) {
        sums[j] = nothing_seen ? 0 : sums[j] / sum_[i];
      }
      store(out, first_ + i, sums, shape_.width);
      logsumexp.data[(first_ + i) * logsumexp.stride] =
          nothing_seen ? 0 : max_[i] + std::log(sum_[i]);
    }
  }

  const AttentionShape& shape_;
  const AttentionHead& head_;
  const cpu::RegisterBlock registers_ = cpu::register_block();
  const int64_t strip_ = registers_.cols;
  const int64_t row_ = round_up(shape_.width, strip_);  // of sums
  // The part of the queries under way: packed; and of each, the sum of weighted values, of the
  // weights, and the largest score.
  int64_t first_ = 0;
  int64_t part_ = 0;
  const float* query_ = nullptr;
  float* sums_ = nullptr;
  float* sum_ = nullptr;
  float* max_ = nullptr;
  float* scores_ = nullptr;  // of a block of keys and a strip of queries
};

class Backward {
 public:
  Backward(const AttentionShape& shape, const AttentionHead& head, const Factor& grad_out,
           QueryNumbers<const float> logsumexp)
      : shape_(shape), head_(head), grad_out_(grad_out), logsumexp_(logsumexp) {}

  void run(const Factor& out, const AttentionGradients& gradients) {
    Workspace& space = workspace();
    const int64_t block = std::min(kQueryBlock, shape_.queries);
    delta_ = space.delta.of_size(shape_.queries);
    find_delta(out);
    grad_query_ = zeros(space.grad_query, shape_.queries * row_);
    scores_ = space.scores.of_size(block * strip_);
    gradients_ = space.gradients.of_size(block * strip_);
    for (first_ = 0; first_ < shape_.keys; first_ += kKeyPart) {
      part_ = std::min(kKeyPart, shape_.keys - first_);
      pack_part();
      for (int64_t query = shape_.causal ? first_ / kQueryBlock * kQueryBlock : 0;
           query < shape_.queries; query += kQueryBlock) {
        add_queries(query, std::min(kQueryBlock, shape_.queries - query));
      }
      store_rows(gradients.key, first_, part_, grad_key_, row_, shape_.width);
      store_rows(gradients.value, first_, part_, grad_value_, row_, shape_.width);
    }
    store_rows(gradients.query, 0, shape_.queries, grad_query_, row_, shape_.width);
  }

 private:
  struct Workspace {
    Scratch delta, grad_query, scores, gradients, mask;
    Scratch key, value, key_columns, grad_key, grad_value;
    Scratch query, grad_out, query_columns, grad_out_columns, logsumexp;
  };

  static Workspace& workspace() {
    static thread_local Workspace instance;
    return instance;
  }

  // Of each query the sum over keys of p times its gradient, which is that of out times grad_out.
  void find_delta(const Factor& out) {
    Workspace& space = workspace();
    const int64_t width = shape_.width;
    for (int64_t query = 0; query < shape_.queries; query += kQueryBlock) {
      const int64_t count = std::min(kQueryBlock, shape_.queries - query);
      // A line after the other in strips of columns: number k of line i at [k * strip + i].
      const float* a = packed(space.query, Side::cols, rows_of(out, query, count, width));
      const float* b = packed(space.grad_out, Side::cols, rows_of(grad_out_, query, count, width));
      for (int64_t i = 0; i < count; ++i) {
        const int64_t line = i / strip_ * strip_ * width + i % strip_;
        double sum = 0;
        for (int64_t k = 0; k < width; ++k) {
          sum += static_cast<double>(a[line + k * strip_]) * b[line + k * strip_];
        }
        delta_[query + i] = static_cast<float>(sum);
      }
    }
  }

  void pack_part() {
    Workspace& space = workspace();
    const int64_t width = shape_.width;
    key_ = packed(space.key, Side::cols, rows_of(head_.key, first_, part_, width));
    value_ = packed(space.value, Side::cols, rows_of(head_.value, first_, part_, width));
    key_columns_ =
        packed(space.key_columns, Side::cols, columns_of(head_.key, first_, part_, width));
    grad_key_ = zeros(space.grad_key, part_ * row_);
    grad_value_ = zeros(space.grad_value, part_ * row_);
  }

  void add_queries(int64_t query, int64_t queries) {
    Workspace& space = workspace();
    const int64_t width = shape_.width;
    const int64_t row_block = registers_.rows;
    const float* a = packed(space.query, Side::rows, rows_of(head_.query, query, queries, width));
    const float* grad_a =
        packed(space.grad_out, Side::rows, rows_of(grad_out_, query, queries, width));
    const float* b =
        packed(space.query_columns, Side::cols, columns_of(head_.query, query, queries, width));
    const float* grad_b =
        packed(space.grad_out_columns, Side::cols, columns_of(grad_out_, query, queries, width));
    float* logsumexp = space.logsumexp.of_size(queries);
    for (int64_t i = 0; i < queries; ++i) {
      logsumexp[i] = logsumexp_.data[(query + i) * logsumexp_.stride];
    }
    for (int64_t col = 0; col < part_; col += strip_) {
      const int64_t key = first_ + col;
      const int64_t keys = std::min(strip_, part_ - col);
      // The queries that see a key of this strip, in whole register blocks.
      const int64_t skipped =
          shape_.causal ? std::max<int64_t>(0, key - query) / row_block * row_block : 0;
      const int64_t rows = queries - skipped;
      if (rows <= 0) {
        continue;
      }
      cpu::multiply({a + skipped * width, row_block * width, key_ + col * width, 0, scores_, strip_,
                     rows, strip_, width, false});
      cpu::multiply({grad_a + skipped * width, row_block * width, value_ + col * width, 0,
                     gradients_, strip_, rows, strip_, width, false});
      const float* mask =
          head_.mask.data == nullptr
              ? nullptr
              : packed(space.mask, Side::cols,
                       {mask_at(head_.mask, query + skipped, key), head_.mask.format,
                        head_.mask.key_stride, head_.mask.query_stride, keys, rows});
      cpu::softmax_gradient({scores_, gradients_, rows, keys, shape_.scale, mask,
                             shape_.causal ? query + skipped - key : cpu::kAllVisible, shape_.tf32,
                             logsumexp + skipped, delta_ + query + skipped});
      cpu::multiply({scores_, 0, grad_b + skipped * strip_, strip_ * queries,
                     grad_value_ + col * row_, row_, keys, row_, rows, true, Layout::across});
      cpu::multiply({gradients_, 0, b + skipped * strip_, strip_ * queries, grad_key_ + col * row_,
                     row_, keys, row_, rows, true, Layout::across});
      cpu::multiply({gradients_, 0, key_columns_ + col * strip_, strip_ * part_,
                     grad_query_ + (query + skipped) * row_, row_, rows, row_, keys, true,
                     Layout::along});
    }
  }

  const AttentionShape& shape_;
  const AttentionHead& head_;
  const Factor& grad_out_;
  const QueryNumbers<const float> logsumexp_;
  const cpu::RegisterBlock registers_ = cpu::register_block();
  const int64_t strip_ = registers_.cols;
  const int64_t row_ = round_up(shape_.width, strip_);  // of gradients
  float* delta_ = nullptr;                              // of each query
  float* grad_query_ = nullptr;
  // The part of the keys under way.
  int64_t first_ = 0;
  int64_t part_ = 0;
  const float* key_ = nullptr;
  const float* value_ = nullptr;
  const float* key_columns_ = nullptr;
  float* grad_key_ = nullptr;
  float* grad_value_ = nullptr;
  // Of a block of queries and a strip of keys.
  float* scores_ = nullptr;
  float* gradients_ = nullptr;
};

}  // namespace

void attend(const AttentionShape& shape, const AttentionHead& head, const AttentionOutput& out,
            QueryNumbers<float> logsumexp) {
  Forward(shape, head).run(out, logsumexp);
}

void attend_backward(const AttentionShape& shape, const AttentionHead& head, const Factor& grad_out,
                     const Factor& out, QueryNumbers<const float> logsumexp,
                     const AttentionGradients& gradients) {
  Backward(shape, head, grad_out, logsumexp).run(out, gradients);
}

}  // namespace mantissa::ops
