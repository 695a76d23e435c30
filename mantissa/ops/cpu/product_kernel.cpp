#include "mantissa/ops/cpu/product_kernel.h"

#include <algorithm>

// Vectors of a size that is known when this is compiled: they are held in arrays.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/product_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "mantissa/ops/cpu/register_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {
// Row i of `a` begins at a[i * kRowStep]; its numbers are `depth_step` apart.
template <int64_t kHeight, int64_t kRowStep>
HWY_INLINE void multiply_block(const float* HWY_RESTRICT a, int64_t depth_step,
                               const float* HWY_RESTRICT b, int64_t depth,
                               Floats (&sums)[kHeight][kVectors]) {
  for (auto& row : sums) {
    for (Floats& sum : row) {
      sum = hn::Zero(kFloats);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Floats numbers[kVectors];
    for (int64_t j = 0; j < kVectors; ++j) {
      numbers[j] = hn::Load(kFloats, b + j * kLanes);
    }
#pragma GCC unroll 12
    for (int64_t i = 0; i < kHeight; ++i) {
      const Floats factor = hn::Set(kFloats, a[i * kRowStep]);
      for (int64_t j = 0; j < kVectors; ++j) {
        sums[i][j] = hn::MulAdd(factor, numbers[j], sums[i][j]);
      }
    }
    a += depth_step;
    b += kCols;
  }
}

HWY_INLINE void put(Floats sums, float* c, bool add) {
  hn::StoreU(add ? hn::Add(hn::LoadU(kFloats, c), sums) : sums, kFloats, c);
}

// Up to kHeight rows of `a` times one strip of `b`.
template <int64_t kHeight, int64_t kRowStep>
HWY_INLINE void multiply_rows(const TileProduct& tile, const float* a, int64_t depth_step,
                              const float* b, float* c, int64_t rows, int64_t cols) {
  Floats sums[kHeight][kVectors];
  multiply_block<kHeight, kRowStep>(a, depth_step, b, tile.depth, sums);
  if (rows == kHeight && cols == kCols) {
#pragma GCC unroll 12
    for (int64_t i = 0; i < kHeight; ++i) {
      for (int64_t j = 0; j < kVectors; ++j) {
        put(sums[i][j], c + i * tile.c_row + j * kLanes, tile.add);
      }
    }
    return;
  }
  HWY_ALIGN float whole[kHeight * kCols];
#pragma GCC unroll 12
  for (int64_t i = 0; i < kHeight; ++i) {
    for (int64_t j = 0; j < kVectors; ++j) {
      hn::Store(sums[i][j], kFloats, whole + i * kCols + j * kLanes);
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      float& element = c[i * tile.c_row + j];
      element = tile.add ? element + whole[i * kCols + j] : whole[i * kCols + j];
    }
  }
}

// `block_step` from the first number of a block of kRows rows to that of the next.
template <int64_t kRowStep>
void multiply_tile(const TileProduct& tile, int64_t block_step, int64_t depth_step) {
  constexpr int64_t kThird = kRows / 3;
  for (int64_t col = 0; col < tile.cols; col += kCols) {
    const float* a = tile.a;
    const float* b = tile.b + col / kCols * tile.b_strip;
    const int64_t cols = std::min(kCols, tile.cols - col);
    for (int64_t row = 0; row < tile.rows; row += kRows) {
      float* c = tile.c + row * tile.c_row + col;
      const int64_t rows = std::min(kRows, tile.rows - row);
      if (rows > 2 * kThird) {
        multiply_rows<kRows, kRowStep>(tile, a, depth_step, b, c, rows, cols);
      } else if (rows > kThird) {
        multiply_rows<2 * kThird, kRowStep>(tile, a, depth_step, b, c, rows, cols);
      } else {
        multiply_rows<kThird, kRowStep>(tile, a, depth_step, b, c, rows, cols);
      }
      a += block_step;
    }
  }
}

void multiply(const TileProduct& tile) {
  switch (tile.a_layout) {
    case TileProduct::Layout::strips:
      return multiply_tile<1>(tile, tile.a_strip, kRows);
    case TileProduct::Layout::across:
      return multiply_tile<1>(tile, kRows, kCols);
    case TileProduct::Layout::along:
      return multiply_tile<kCols>(tile, kRows * kCols, 1);
  }
}

// Lines lie side by side. A strip may be narrower than its last vector: the rest of that is
// overwritten by the next numbers.
template <typename Source, int64_t kWidth>
void pack_across(const Lines& from, float* strips) {
  const auto* data = static_cast<const typename Source::Element*>(from.data);
  for (int64_t line = 0; line < from.lines; line += kWidth) {
    const int64_t lines = from.lines - line;
    float* to = strips + line * from.depth;
    for (int64_t k = 0; k < from.depth; ++k) {
      const auto* in = data + line + k * from.depth_stride;
      for (int64_t i = 0; i < kWidth; i += kLanes) {
        const int64_t left = lines - i;
        const Floats numbers = left >= kLanes ? Source::read(in + i)
                               : left > 0     ? read_first<Source>(in + i, left)
                                              : hn::Zero(kFloats);
        hn::StoreU(numbers, kFloats, to + k * kWidth + i);
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

template <Format kFormat>
void pack_as(Side side, const Lines& from, float* strips) {
  if (side == Side::rows) {
    pack_lines<Reader<kFormat>, kRows>(from, strips);
  } else {
    pack_lines<Reader<kFormat>, kCols>(from, strips);
  }
}

void pack(Side side, const Lines& from, float* strips) {
  switch (from.format) {
    case Format::bf16:
      return pack_as<Format::bf16>(side, from, strips);
    case Format::fp16:
      return pack_as<Format::fp16>(side, from, strips);
    case Format::tf32:
      return pack_as<Format::tf32>(side, from, strips);
    case Format::fp32:
      return pack_as<Format::fp32>(side, from, strips);
    case Format::fp8_e4m3:
    case Format::fp8_e5m2:
      return;  // no factors
  }
}

RegisterBlock register_block() { return {kRows, kCols}; }

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops::cpu {

HWY_EXPORT(multiply);
HWY_EXPORT(pack);
HWY_EXPORT(register_block);

void multiply(const TileProduct& tile) { HWY_DYNAMIC_DISPATCH(multiply)(tile); }

void pack(Side side, const Lines& from, float* strips) {
  HWY_DYNAMIC_DISPATCH(pack)(side, from, strips);
}

RegisterBlock register_block() { return HWY_DYNAMIC_DISPATCH(register_block)(); }

}  // namespace mantissa::ops::cpu
#endif
