#include "mantissa/ops/window_products.h"

#include <algorithm>

#include <ATen/Parallel.h>

#include "mantissa/ops/block_product.h"
#include "mantissa/ops/cpu/product_kernel.h"
#include "mantissa/ops/parallel.h"
#include "mantissa/ops/scratch.h"

namespace mantissa::ops {
namespace {

using cpu::Segment;
using cpu::Shift;
using cpu::Side;
using Layout = cpu::TileProduct::Layout;
using numerics::Format;

struct Workspace {
  Scratch lines;
  Scratch columns;  // lines with the channels of a position side by side
};

Workspace& workspace() {
  static thread_local Workspace instance;
  return instance;
}

void fill(const Image& image, int64_t channel, int64_t stride, const std::vector<Segment>& segments,
          float* line) {
  cpu::fill_line(image.from(channel).data, image.format, stride, image.channel_stride, segments,
                 line);
}

/// How numbers are copied into a row of each strip of columns; cpu/product_kernel.h has strips. A
/// vector may reach columns that are written after it, but not another row.
class StripMoves {
 public:
  int64_t width() const { return width_; }
  const cpu::Moves& moves() const { return moves_; }
  bool empty() const { return moves_.vectors.empty() && moves_.rests.empty(); }

  void begin(int64_t depth) {
    depth_ = depth;
    moves_.vectors.clear();
    moves_.rests.clear();
    pieces_.clear();
  }

  // Numbers that lie side by side, for columns after those that were added before.
  void add(int64_t from, int64_t col, int64_t count) {
    const int64_t end = col + count;
    while (col < end) {
      const int64_t strip = col / width_;
      if (!pieces_.empty() && strip != strip_) {
        finish();
      }
      strip_ = strip;
      const int64_t size = std::min((strip + 1) * width_, end) - col;
      pieces_.push_back({from, col - strip * width_, size});
      from += size;
      col += size;
    }
  }

  void finish() {
    size_t count = pieces_.size();
    if (count > 1 && pieces_[count - 1].size < vector_ && pieces_[count - 2].size >= vector_ &&
        pieces_[count - 2].end() == pieces_[count - 1].col) {
      // First, over the end of what lies before it.
      const Piece& last = pieces_[--count];
      move(last.from + last.size - vector_, last.end() - vector_);
    }
    for (size_t i = 0; i < count; ++i) {
      const Piece& piece = pieces_[i];
      int64_t limit = piece.end();
      for (size_t j = i + 1; j < count && pieces_[j].col == limit; ++j) {
        limit = pieces_[j].end();
      }
      for (int64_t done = 0; done < piece.size; done += vector_) {
        if (piece.col + done + vector_ <= limit) {
          move(piece.from + done, piece.col + done);
        } else if (piece.size >= vector_) {
          move(piece.from + piece.size - vector_, piece.end() - vector_);
        } else {
          moves_.rests.push_back({static_cast<int32_t>(piece.from), place(piece.col),
                                  static_cast<int32_t>(piece.size)});
        }
      }
    }
    pieces_.clear();
  }

 private:
  struct Piece {
    int64_t from;
    int64_t col;  // in the strip
    int64_t size;

    int64_t end() const { return col + size; }
  };

  int32_t place(int64_t col) const { return static_cast<int32_t>(strip_ * width_ * depth_ + col); }

  void move(int64_t from, int64_t col) {
    moves_.vectors.push_back({static_cast<int32_t>(from), place(col)});
  }

  const int64_t width_ = cpu::register_block().cols;
  const int64_t vector_ = cpu::vector_size();
  int64_t depth_ = 0;
  int64_t strip_ = 0;
  std::vector<Piece> pieces_;
  cpu::Moves moves_;
};

// The columns that the last strip lacks.
void clear_rest(int64_t cols, int64_t depth, float* strips) {
  const int64_t width = cpu::register_block().cols;
  const int64_t in_strip = cols % width;
  if (in_strip == 0) {
    return;
  }
  float* strip = strips + cols / width * width * depth;
  for (int64_t k = 0; k < depth; ++k) {
    std::fill(strip + k * width + in_strip, strip + (k + 1) * width, 0.0F);
  }
}

struct Taps {
  explicit Taps(const Axes& axes, const Filter& filter)
      : count(taps_of(axes)),
        groups(tap_groups(axes)),
        margin(largest_shift(groups)),
        offsets(tap_offsets(axes, filter)) {}

  int64_t count;
  std::vector<TapGroup> groups;
  int64_t margin;
  std::vector<int64_t> offsets;  // in the filter
};

/// One group's rows by windows, over channels and taps.
class SumsProduct final : public BlockProduct {
 public:
  SumsProduct(const WindowSums& sums, const Taps& taps, int64_t group)
      : sums_(sums), taps_(taps), group_(group) {}

  Layout pack_rows(int64_t row, int64_t rows, int64_t k, int64_t depth, float* to) override {
    offsets_.resize(static_cast<size_t>(depth));
    const Filter& filter = sums_.filter;
    int64_t channel = k / taps_.count;
    int64_t tap = k % taps_.count;
    bool in_order = true;
    for (size_t i = 0; i < offsets_.size(); ++i) {
      offsets_[i] = channel * filter.channel_stride + taps_.offsets[static_cast<size_t>(tap)];
      in_order = in_order && offsets_[i] == offsets_[0] + static_cast<int64_t>(i);
      if (++tap == taps_.count) {
        tap = 0;
        ++channel;
      }
    }
    const auto* data = static_cast<const char*>(filter.data) +
                       (group_ * filter.group_stride + row * filter.row_stride) *
                           (numerics::info(filter.format).storage_bits / 8);
    if (in_order) {
      data += offsets_[0] * (numerics::info(filter.format).storage_bits / 8);
      return cpu::pack_rows({data, filter.format, filter.row_stride, 1, rows, depth}, to);
    }
    cpu::pack_rows_at(data, filter.format, filter.row_stride, rows, offsets_, to);
    return Layout::strips;
  }

  void pack_cols(int64_t col, int64_t cols, int64_t k, int64_t depth, float* strips) override {
    set_windows(col, cols);
    moves_.begin(depth);
    for (const WindowRange::Run& run : range_.runs()) {
      moves_.add(run.at, run.number, run.count);
    }
    moves_.finish();
    clear_rest(cols, depth, strips);
    float* line = workspace().lines.of_size(range_.line_size() + cpu::kWindowSlack);
    for (const TapGroup& group : taps_.groups) {
      range_.find_segments(sums_.axes, sums_.source, group, segments_);
      for (int64_t c = k / taps_.count; c * taps_.count < k + depth; ++c) {
        shifts_.clear();
        for (const TapGroup::Member& tap : group.taps) {
          const int64_t row = c * taps_.count + tap.number - k;
          if (row >= 0 && row < depth) {
            shifts_.push_back({tap.shift, row * moves_.width()});
          }
        }
        if (!shifts_.empty()) {
          fill(sums_.source, group_ * sums_.extent.channels + c,
               sums_.axes.back().step * sums_.source.strides.back(), segments_, line);
          cpu::copy(line, moves_.moves(), shifts_, strips);
        }
      }
    }
  }

  void store(float* sums, int64_t sums_row, const Block& block) override {
    set_windows(block.col, block.cols);
    for (int64_t i = 0; i < block.rows; ++i, sums += sums_row) {
      const int64_t channel = group_ * sums_.extent.rows + block.row + i;
      if (sums_.bias != nullptr) {
        for (int64_t j = 0; j < block.cols; ++j) {
          sums[j] += sums_.bias[channel];
        }
      }
      ops::store(sums, block.cols, places_, sums_.result, channel);
    }
  }

 private:
  void set_windows(int64_t first, int64_t count) {
    if (first == first_ && count == count_) {
      return;
    }
    first_ = first;
    count_ = count;
    range_ = WindowRange(sums_.axes, first, count, taps_.margin);
    places_ = places_of(range_, sums_.result);
  }

  const WindowSums& sums_;
  const Taps& taps_;
  const int64_t group_;
  StripMoves moves_;
  int64_t first_ = -1;
  int64_t count_ = 0;
  WindowRange range_;
  std::vector<Place> places_;
  std::vector<int64_t> offsets_;
  std::vector<Segment> segments_;
  std::vector<Shift> shifts_;
};

/// One group's rows by channels and taps, over images and windows. Columns are in the order of
/// blocks of channels, of taps, and of the channels in the block, so that channels of a position,
/// once side by side, are copied for each tap.
class GradientProduct final : public BlockProduct {
 public:
  GradientProduct(const FilterGradient& gradient, const Taps& taps, int64_t group)
      : gradient_(gradient), taps_(taps), group_(group) {
    const int64_t channels = gradient.extent.channels;
    const int64_t blocks = (channels + width_ - 1) / width_;
    block_channels_ = (channels + blocks - 1) / blocks;
  }

  Layout pack_rows(int64_t row, int64_t rows, int64_t k, int64_t depth, float* to) override {
    const Axes axes = positions_of(gradient_.axes);
    const Image& sums = gradient_.sums;
    WindowRange(axes, k, depth, 0).find_segments(axes, sums, {{0, 0, 0}, {}}, segments_);
    for (int64_t i = 0; i < rows; ++i) {
      fill(sums, group_ * gradient_.extent.rows + row + i, sums.strides.back(), segments_,
           to + i * cpu::kLineStep);
    }
    return Layout::lines;
  }

  void pack_cols(int64_t col, int64_t cols, int64_t k, int64_t depth, float* strips) override {
    const WindowRange range(gradient_.axes, k, depth, taps_.margin);
    shifts_.clear();
    for (const WindowRange::Run& run : range.runs()) {
      for (int64_t i = 0; i < run.count; ++i) {
        shifts_.push_back({(run.at + i) * width_, (run.number + i) * width_});
      }
    }
    clear_rest(cols, depth, strips);
    const int64_t size = range.line_size();
    float* lines = workspace().lines.of_size(block_channels_ * size + cpu::kWindowSlack);
    float* columns = workspace().columns.of_size(size * width_ + cpu::kPackingSlack);
    for (const TapGroup& group : taps_.groups) {
      range.find_segments(gradient_.axes, gradient_.source, group, segments_);
      const int64_t block_cols = block_channels_ * taps_.count;
      for (int64_t block = col / block_cols; block * block_cols < col + cols; ++block) {
        const int64_t channels = channels_of(block);
        find_moves(group, block, col, cols, depth);
        if (moves_.empty()) {
          continue;
        }
        for (int64_t c = 0; c < channels; ++c) {
          fill(gradient_.source, group_ * gradient_.extent.channels + block * block_channels_ + c,
               gradient_.axes.back().step * gradient_.source.strides.back(), segments_,
               lines + c * size);
        }
        cpu::pack(Side::cols, {lines, Format::fp32, size, 1, channels, size}, columns);
        cpu::copy(columns, moves_.moves(), shifts_, strips);
      }
    }
  }

  void store(float* sums, int64_t sums_row, const Block& block) override {
    find_places(block.col, block.cols);
    const Filter& gradient = gradient_.gradient;
    // One row of a filter, as an image of one channel.
    const Image image = {gradient.data, gradient.format, 0, 1, {1, 1, 1}};
    for (int64_t i = 0; i < block.rows; ++i) {
      ops::store(sums + i * sums_row, block.cols, places_, image,
                 group_ * gradient.group_stride + (block.row + i) * gradient.row_stride);
    }
  }

 private:
  int64_t channels_of(int64_t block) const {
    return std::min(block_channels_, gradient_.extent.channels - block * block_channels_);
  }

  int64_t column_of(int64_t block, int64_t tap) const {
    return block * block_channels_ * taps_.count + tap * channels_of(block);
  }

  void find_moves(const TapGroup& group, int64_t block, int64_t col, int64_t cols, int64_t depth) {
    moves_.begin(depth);
    for (const TapGroup::Member& tap : group.taps) {
      const int64_t first = column_of(block, tap.number);
      const int64_t begin = std::max(first, col);
      const int64_t end = std::min(first + channels_of(block), col + cols);
      if (begin < end) {
        moves_.add(tap.shift * width_ + begin - first, begin - col, end - begin);
      }
    }
    moves_.finish();
  }

  void find_places(int64_t col, int64_t cols) {
    if (col == placed_col_) {
      return;
    }
    placed_col_ = col;
    places_.clear();
    const int64_t block_cols = block_channels_ * taps_.count;
    for (int64_t j = col; j < col + cols; ++j) {
      const int64_t block = j / block_cols;
      const int64_t rest = j - block * block_cols;
      const int64_t channel = block * block_channels_ + rest % channels_of(block);
      places_.push_back({channel * gradient_.gradient.channel_stride +
                             taps_.offsets[static_cast<size_t>(rest / channels_of(block))],
                         j - col, 1});
    }
  }

  const int64_t width_ = cpu::register_block().cols;
  const FilterGradient& gradient_;
  const Taps& taps_;
  const int64_t group_;
  int64_t block_channels_ = 0;
  int64_t placed_col_ = -1;
  std::vector<Place> places_;
  StripMoves moves_;
  std::vector<Segment> segments_;
  std::vector<Shift> shifts_;
};

template <typename Product, typename Sums>
void multiply(const Sums& sums, const Filter& filter, int64_t n, int64_t k) {
  const Taps taps(sums.axes, filter);
  const int64_t groups = sums.extent.groups;
  const int64_t threads = at::get_num_threads();
  const std::vector<Block> blocks =
      blocks_of(sums.extent.rows, n, k, (threads + groups - 1) / groups);
  const auto count = std::ssize(blocks);
  parallel_for(0, groups * count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Product product(sums, taps, i / count);
      multiply_block(product, blocks[static_cast<size_t>(i % count)], k);
    }
  });
}

}  // namespace

void add_by_panels(const WindowSums& sums) {
  multiply<SumsProduct>(sums, sums.filter, sums.extent.batch * windows_of(sums.axes),
                        sums.extent.channels * taps_of(sums.axes));
}

void add_by_panels(const FilterGradient& gradient) {
  multiply<GradientProduct>(gradient, gradient.gradient,
                            gradient.extent.channels * taps_of(gradient.axes),
                            gradient.extent.batch * windows_of(gradient.axes));
}

}  // namespace mantissa::ops
