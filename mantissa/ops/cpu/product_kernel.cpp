#include "mantissa/ops/cpu/product_kernel.h"

#include <algorithm>

// Vectors of a size that is known when this is compiled: they are held in arrays.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/product_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "mantissa/ops/cpu/element_lanes-inl.h"
#include "mantissa/ops/cpu/register_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {
// Row i of `a` begins at a[i * kRowStep]; its numbers are `depth_step` apart.
template <int64_t kHeight, int64_t kWidth, int64_t kRowStep>
HWY_INLINE void multiply_block(const float* HWY_RESTRICT a, int64_t depth_step,
                               const float* HWY_RESTRICT b, int64_t depth,
                               Floats (&sums)[kHeight][kWidth]) {
  for (auto& row : sums) {
    for (Floats& sum : row) {
      sum = hn::Zero(kFloats);
    }
  }
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; ++k) {
    Floats numbers[kWidth];
    for (int64_t j = 0; j < kWidth; ++j) {
      numbers[j] = hn::Load(kFloats, b + j * kLanes);
    }
#pragma GCC unroll 12
    for (int64_t i = 0; i < kHeight; ++i) {
      const Floats factor = hn::Set(kFloats, a[i * kRowStep]);
      for (int64_t j = 0; j < kWidth; ++j) {
        sums[i][j] = hn::MulAdd(factor, numbers[j], sums[i][j]);
      }
    }
    a += depth_step;
    b += kCols;
  }
}

// Up to kHeight rows of `a` times kWidth vectors of a strip of `b`.
template <int64_t kHeight, int64_t kWidth, int64_t kRowStep>
HWY_INLINE void multiply_rows(const TileProduct& tile, const float* a, int64_t depth_step,
                              const float* b, float* c, int64_t rows) {
  if (tile.add) {
    for (int64_t i = 0; i < std::min(kHeight, rows); ++i) {
      for (int64_t j = 0; j < kWidth; ++j) {
        hwy::Prefetch(c + i * tile.c_row + j * kLanes);
      }
    }
  }
  Floats sums[kHeight][kWidth];
  multiply_block<kHeight, kWidth, kRowStep>(a, depth_step, b, tile.depth, sums);
#pragma GCC unroll 12
  for (int64_t i = 0; i < kHeight; ++i) {
    if (i == rows) {
      return;
    }
    for (int64_t j = 0; j < kWidth; ++j) {
      float* to = c + i * tile.c_row + j * kLanes;
      hn::StoreU(tile.add ? hn::Add(hn::LoadU(kFloats, to), sums[i][j]) : sums[i][j], kFloats, to);
    }
  }
}

// `block_step` from the first number of a block of kRows rows to that of the next.
template <int64_t kWidth, int64_t kRowStep>
void multiply_strip(const TileProduct& tile, int64_t block_step, int64_t depth_step, int64_t col) {
  constexpr int64_t kThird = kRows / 3;
  const float* a = tile.a;
  const float* b = tile.b + col / kCols * tile.b_strip;
  float* c = tile.c + col;
  for (int64_t rows = tile.rows; rows > 0; rows -= kRows) {
    if (rows > 2 * kThird) {
      multiply_rows<kRows, kWidth, kRowStep>(tile, a, depth_step, b, c, rows);
    } else if (rows > kThird) {
      multiply_rows<2 * kThird, kWidth, kRowStep>(tile, a, depth_step, b, c, rows);
    } else {
      multiply_rows<kThird, kWidth, kRowStep>(tile, a, depth_step, b, c, rows);
    }
    a += block_step;
    c += kRows * tile.c_row;
  }
}

template <int64_t kRowStep>
void multiply_tile(const TileProduct& tile, int64_t block_step, int64_t depth_step) {
  constexpr int64_t kHalf = kVectors / 2;
  for (int64_t col = 0; col < tile.cols; col += kCols) {
    if (tile.cols - col > kHalf * kLanes) {
      multiply_strip<kVectors, kRowStep>(tile, block_step, depth_step, col);
    } else {
      multiply_strip<kHalf, kRowStep>(tile, block_step, depth_step, col);
    }
  }
}

void multiply(const TileProduct& tile) {
  switch (tile.a_layout) {
    case TileProduct::Layout::strips:
      return multiply_tile<1>(tile, tile.a_strip, kRows);
    case TileProduct::Layout::lines:
      return multiply_tile<kLineStep>(tile, kRows * kLineStep, 1);
    case TileProduct::Layout::across:
      return multiply_tile<1>(tile, kRows, kCols);
    case TileProduct::Layout::along:
      return multiply_tile<kCols>(tile, kRows * kCols, 1);
  }
}

// Lines lie side by side. A few numbers of each at a time, so that memory is read along. A strip
// may be narrower than its last vector: the rest of that is overwritten by the next numbers, where
// there are some in the strip.
template <typename Source, int64_t kWidth>
void pack_across(const Lines& from, float* strips) {
  constexpr int64_t kBlock = 8;
  constexpr int64_t kWhole = (kWidth + kLanes - 1) / kLanes * kLanes;
  const auto* data = static_cast<const typename Source::Element*>(from.data);
  const auto* const end = data + (from.depth - 1) * from.depth_stride + from.lines;
  const int64_t ahead = kBlock * from.depth_stride;
  for (int64_t block = 0; block < from.depth; block += kBlock) {
    const int64_t depth = std::min(kBlock, from.depth - block);
    for (int64_t line = 0; line < from.lines; line += kWidth) {
      const auto* in = data + block * from.depth_stride + line;
      float* to = strips + line * from.depth + block * kWidth;
      const auto put = [&](const auto& read) HWY_ATTR {
        const auto put_next = [&](float* numbers) HWY_ATTR {
          hwy::Prefetch(in + ahead);
          for (int64_t i = 0; i < kWhole; i += kLanes) {
            hn::StoreU(read(in + i, i), kFloats, numbers + i);
          }
          in += from.depth_stride;
        };
        for (int64_t k = 1; k < depth; ++k) {
          put_next(to);
          to += kWidth;
        }
        if (kWhole == kWidth || block + depth < from.depth) {
          put_next(to);
        } else {
          HWY_ALIGN float last[kWhole];
          put_next(last);
          std::copy_n(last, kWidth, to);
        }
      };
      const int64_t lines = from.lines - line;
      if (lines >= kWhole) {
        put([](const auto* numbers, int64_t) HWY_ATTR { return Source::read(numbers); });
      } else {
        put([&](const auto* numbers, int64_t i) HWY_ATTR {
          const int64_t left = std::max<int64_t>(lines - i, 0);
          return end - numbers >= kLanes
                     ? hn::IfThenElseZero(hn::FirstN(kFloats, static_cast<size_t>(left)),
                                          Source::read(numbers))
                     : read_first<Source>(numbers, left);
        });
      }
    }
  }
}

// The numbers of a line are contiguous: blocks of four lines, the last of a strip overlapping where
// the width is no multiple of four, and few enough numbers of each for a strip to stay in the
// cache.
template <typename Source, int64_t kWidth>
void pack_along(const Lines& from, float* strips) {
  constexpr int64_t kFour = 4;
  constexpr int64_t kBlock = 128;
  constexpr hn::CappedTag<float, kFour> kPiece;
  const auto* data = static_cast<const typename Source::Element*>(from.data);
  HWY_ALIGN float transposed[kFour * kLanes];
  for (int64_t strip = 0; strip < from.lines; strip += kWidth) {
    float* to = strips + strip * from.depth;
    for (int64_t block = 0; block < from.depth; block += kBlock) {
      const int64_t end = std::min(from.depth, block + kBlock);
      for (int64_t done = 0; done < kWidth; done += kFour) {
        const int64_t first = std::min(done, kWidth - kFour);
        const int64_t lines = from.lines - strip - first;
        const auto* in = data + (strip + first) * from.line_stride;
        for (int64_t k = block; k < end; k += kLanes) {
          const int64_t count = std::min(kLanes, end - k);
          const auto numbers = [&](int64_t i) HWY_ATTR {
            const auto* line = in + i * from.line_stride + k;
            return i >= lines        ? hn::Zero(kFloats)
                   : count == kLanes ? Source::read(line)
                                     : read_first<Source>(line, count);
          };
          hn::StoreInterleaved4(numbers(0), numbers(1), numbers(2), numbers(3), kFloats,
                                transposed);
          for (int64_t i = 0; i < count; ++i) {
            for (size_t j = 0; j < kFour; j += hn::MaxLanes(kPiece)) {
              hn::StoreU(hn::LoadU(kPiece, transposed + kFour * i + j), kPiece,
                         to + (k + i) * kWidth + first + j);
            }
          }
        }
      }
    }
  }
}

template <typename Source, int64_t kWidth>
void pack_lines(const Lines& from, float* strips) {
  if (from.line_stride == 1) {
    pack_across<Source, kWidth>(from, strips);
  } else {
    pack_along<Source, kWidth>(from, strips);
  }
}

template <typename Source>
void widen_lines(const Lines& from, float* to) {
  const auto* data = static_cast<const typename Source::Element*>(from.data);
  for (int64_t line = 0; line < from.lines; ++line) {
    const auto* in = data + line * from.line_stride;
    int64_t k = 0;
    for (; k + kLanes <= from.depth; k += kLanes) {
      hwy::Prefetch(in + k + from.line_stride);
      hn::StoreU(Source::read(in + k), kFloats, to + k);
    }
    if (k < from.depth) {
      hn::StoreU(read_first<Source>(in + k, from.depth - k), kFloats, to + k);
    }
    to += kLineStep;
  }
}

void pack(Side side, const Lines& from, float* strips) {
  with_reader(from.format, [&]<typename Source>(Source /*reader*/) HWY_ATTR {
    if (side == Side::rows) {
      pack_lines<Source, kRows>(from, strips);
    } else {
      pack_lines<Source, kCols>(from, strips);
    }
  });
}

TileProduct::Layout pack_rows(const Lines& from, float* to) {
  const bool in_lines = from.depth_stride == 1;
  with_reader(from.format, [&]<typename Source>(Source /*reader*/) HWY_ATTR {
    if (in_lines) {
      widen_lines<Source>(from, to);
    } else {
      pack_across<Source, kRows>(from, to);
    }
  });
  return in_lines ? TileProduct::Layout::lines : TileProduct::Layout::strips;
}

void store(const TileOutput& output) {
  with_format(output.format, [&]<Format kFormat>() HWY_ATTR {
    using Out = Elements<kFormat>;
    const Floats alpha = hn::Set(kFloats, output.alpha);
    const Floats beta = hn::Set(kFloats, output.beta);
    for (int64_t i = 0; i < output.rows; ++i) {
      const float* sums = output.sums + i * output.sums_row;
      auto* out = static_cast<typename Out::Type*>(output.out) + i * output.out_row;
      if (output.beta == 0) {
        for_vectors(
            output.cols,
            [&](const float* sums_at, typename Out::Type* out_at)
                HWY_ATTR { Out::write(hn::Mul(alpha, hn::LoadU(kFloats, sums_at)), out_at); },
            sums, out);
      } else {
        for_vectors(
            output.cols,
            [&](const float* sums_at, const typename Out::Type* addend_at,
                typename Out::Type* out_at) HWY_ATTR {
              const Floats sum = hn::Mul(alpha, hn::LoadU(kFloats, sums_at));
              Out::write(hn::Add(sum, hn::Mul(beta, Out::read(addend_at))), out_at);
            },
            sums, static_cast<const typename Out::Type*>(output.addend) + i * output.addend_row,
            out);
      }
    }
  });
}

RegisterBlock register_block() { return {kRows, kCols}; }

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops::cpu {

HWY_EXPORT(multiply);
HWY_EXPORT(pack);
HWY_EXPORT(pack_rows);
HWY_EXPORT(store);
HWY_EXPORT(register_block);

void multiply(const TileProduct& tile) { HWY_DYNAMIC_DISPATCH(multiply)(tile); }

void pack(Side side, const Lines& from, float* strips) {
  HWY_DYNAMIC_DISPATCH(pack)(side, from, strips);
}

TileProduct::Layout pack_rows(const Lines& from, float* to) {
  return HWY_DYNAMIC_DISPATCH(pack_rows)(from, to);
}

void store(const TileOutput& output) { HWY_DYNAMIC_DISPATCH(store)(output); }

RegisterBlock register_block() { return HWY_DYNAMIC_DISPATCH(register_block)(); }

}  // namespace mantissa::ops::cpu
#endif
