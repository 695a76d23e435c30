#include "mantissa/ops/cpu/window_kernel.h"

#include <algorithm>
#include <array>

#include "mantissa/ops/cpu/product_kernel.h"

// Vectors of a size that is known when this is compiled: they are held in arrays.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/ops/cpu/window_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "mantissa/ops/cpu/read_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE float* put_zeros(float* out, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    hn::StoreU(hn::Zero(kFloats), kFloats, out + i);
  }
  return out + count;
}

template <typename Source>
HWY_INLINE void put_neighbours(const typename Source::Element* in, int64_t count, int64_t ahead,
                               float* out) {
  hwy::Prefetch(in + ahead);
  if (count < kLanes) {
    hn::StoreU(read_first<Source>(in, count), kFloats, out);
    return;
  }
  const int64_t last = count - kLanes;
  for (int64_t i = 0; i < last; i += kLanes) {
    hwy::Prefetch(in + i + kLanes + ahead);
    hn::StoreU(Source::read(in + i), kFloats, out + i);
  }
  hn::StoreU(Source::read(in + last), kFloats, out + last);
}

template <typename Source>
HWY_INLINE void put_numbers(const typename Source::Element* in, int64_t stride, int64_t count,
                            int64_t ahead, float* out) {
  if (stride == 1) {
    return put_neighbours<Source>(in, count, ahead, out);
  }
  constexpr int64_t kBlock = 128;
  typename Source::Element block[kBlock];
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t size = std::min(kBlock, count - first);
    for (int64_t i = 0; i < size; ++i) {
      block[i] = in[(first + i) * stride];
    }
    put_neighbours<Source>(block, size, 0, out + first);
  }
}

// Vectors go beyond the end of what they are to fill; that is filled later.
void fill_line(const void* source, Format format, int64_t stride, int64_t ahead,
               std::span<const Segment> segments, float* line) {
  with_reader(format, [&]<typename Source>(Source /*reader*/) HWY_ATTR {
    const auto* data = static_cast<const typename Source::Element*>(source);
    for (const Segment& segment : segments) {
      float* out = put_zeros(line + segment.to, segment.zeros_before);
      if (segment.count > 0) {
        put_numbers<Source>(data + segment.from, stride, segment.count, ahead, out);
      }
      put_zeros(out + segment.count, segment.zeros_after);
    }
  });
}

int64_t vector_size() { return kLanes; }

void copy(const float* in, const Moves& moves, std::span<const Shift> shifts, float* out) {
  for (const Shift& shift : shifts) {
    const float* from = in + shift.from;
    float* to = out + shift.to;
    for (const Moves::Move& move : moves.vectors) {
      hn::StoreU(hn::LoadU(kFloats, from + move.from), kFloats, to + move.to);
    }
    for (const Moves::Rest& rest : moves.rests) {
      const auto first = hn::FirstN(kFloats, static_cast<size_t>(rest.count));
      const Floats there = hn::LoadU(kFloats, to + rest.to);
      hn::StoreU(hn::IfThenElse(first, hn::LoadU(kFloats, from + rest.from), there), kFloats,
                 to + rest.to);
    }
  }
}

template <typename Source>
void pack_rows_as(const typename Source::Element* data, int64_t row_stride, int64_t rows,
                  std::span<const int64_t> offsets, int64_t strip_rows, float* strips) {
  constexpr int64_t kBlock = 32;
  constexpr int64_t kMostRows = 16;
  HWY_ALIGN typename Source::Element block[kBlock * kMostRows + kLanes] = {};
  const auto depth = static_cast<int64_t>(offsets.size());
  for (int64_t strip = 0; strip < rows; strip += strip_rows) {
    const int64_t lines = std::min(strip_rows, rows - strip);
    float* to = strips + strip * depth;
    for (int64_t first = 0; first < depth; first += kBlock) {
      const int64_t count = std::min(kBlock, depth - first);
      for (int64_t k = 0; k < count; ++k) {
        const auto* in = data + strip * row_stride + offsets[static_cast<size_t>(first + k)];
        auto* row = block + k * strip_rows;
        for (int64_t i = 0; i < lines; ++i) {
          row[i] = in[i * row_stride];
        }
        std::fill(row + lines, row + strip_rows, typename Source::Element{0});
      }
      for (int64_t i = 0; i < count * strip_rows; i += kLanes) {
        hn::StoreU(Source::read(block + i), kFloats, to + first * strip_rows + i);
      }
    }
  }
}

void pack_rows_at(const void* data, Format format, int64_t row_stride, int64_t rows,
                  std::span<const int64_t> offsets, int64_t strip_rows, float* strips) {
  with_reader(format, [&]<typename Source>(Source /*reader*/) HWY_ATTR {
    pack_rows_as<Source>(static_cast<const typename Source::Element*>(data), row_stride, rows,
                         offsets, strip_rows, strips);
  });
}

template <size_t kCount>
void add_to_rows(const float* line, const float* factors, std::span<const int64_t> shifts,
                 const LineSums& to) {
  constexpr int64_t kVectors = kCount == 1 ? 4 : 2;
  for (int64_t i = 0; i < to.count; i += kVectors * kLanes) {
    Floats sums[kCount][kVectors];
#pragma GCC unroll 4
    for (size_t row = 0; row < kCount; ++row) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kVectors; ++j) {
        const float* there = to.sums + static_cast<int64_t>(row) * to.stride + i + j * kLanes;
        sums[row][j] = to.add ? hn::LoadU(kFloats, there) : hn::Zero(kFloats);
      }
    }
    for (size_t t = 0; t < shifts.size(); ++t) {
      const float* in = line + shifts[t] + i;
      Floats numbers[kVectors];
#pragma GCC unroll 4
      for (int64_t j = 0; j < kVectors; ++j) {
        numbers[j] = hn::LoadU(kFloats, in + j * kLanes);
      }
#pragma GCC unroll 4
      for (size_t row = 0; row < kCount; ++row) {
        const Floats factor = hn::Set(kFloats, factors[row * shifts.size() + t]);
#pragma GCC unroll 4
        for (int64_t j = 0; j < kVectors; ++j) {
          sums[row][j] = hn::MulAdd(factor, numbers[j], sums[row][j]);
        }
      }
    }
#pragma GCC unroll 4
    for (size_t row = 0; row < kCount; ++row) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kVectors; ++j) {
        hn::StoreU(sums[row][j], kFloats,
                   to.sums + static_cast<int64_t>(row) * to.stride + i + j * kLanes);
      }
    }
  }
}

void add_shifted(const float* line, std::span<const float> factors, std::span<const int64_t> shifts,
                 const LineSums& to) {
  LineSums some = to;
  for (int64_t row = 0; row < to.rows; row += some.rows) {
    const float* first = factors.data() + row * std::ssize(shifts);
    some.sums = to.sums + row * to.stride;
    some.rows = std::min<int64_t>(4, to.rows - row);
    switch (some.rows) {
      case 1:
        add_to_rows<1>(line, first, shifts, some);
        break;
      case 2:
        add_to_rows<2>(line, first, shifts, some);
        break;
      case 3:
        add_to_rows<3>(line, first, shifts, some);
        break;
      default:
        add_to_rows<4>(line, first, shifts, some);
    }
  }
}

constexpr int64_t kDotSums = 16;

template <size_t kTaps>
void dot_taps(const float* a, const float* b, std::span<const Stretch> stretches,
              const int64_t* shifts, float* dots) {
  constexpr size_t kVectors = kDotSums / kLanes;
  Floats sums[kTaps][kVectors];
  for (auto& tap : sums) {
    for (Floats& sum : tap) {
      sum = hn::Zero(kFloats);
    }
  }
  for (const Stretch& stretch : stretches) {
    const float* left = a + stretch.first;
    const float* right = b + stretch.first;
    int64_t i = 0;
    for (; i + kDotSums <= stretch.count; i += kDotSums) {
      for (size_t j = 0; j < kVectors; ++j) {
        const Floats factor = hn::LoadU(kFloats, left + i + j * kLanes);
        for (size_t t = 0; t < kTaps; ++t) {
          sums[t][j] = hn::MulAdd(factor, hn::LoadU(kFloats, right + shifts[t] + i + j * kLanes),
                                  sums[t][j]);
        }
      }
    }
    for (size_t j = 0; j < kVectors && i < stretch.count; ++j, i += kLanes) {
      // What lies beyond the end may be infinite.
      const auto inside = hn::FirstN(kFloats, static_cast<size_t>(stretch.count - i));
      const Floats factor = hn::IfThenElseZero(inside, hn::LoadU(kFloats, left + i));
      for (size_t t = 0; t < kTaps; ++t) {
        const Floats numbers =
            hn::IfThenElseZero(inside, hn::LoadU(kFloats, right + shifts[t] + i));
        sums[t][j] = hn::MulAdd(factor, numbers, sums[t][j]);
      }
    }
  }
  for (size_t t = 0; t < kTaps; ++t) {
    HWY_ALIGN std::array<float, kDotSums> parts;
    for (size_t j = 0; j < kVectors; ++j) {
      hn::Store(sums[t][j], kFloats, parts.data() + j * kLanes);
    }
    for (size_t half = kDotSums / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) {
        parts[i] += parts[i + half];
      }
    }
    dots[t] = parts[0];
  }
}

void dot_shifted(const float* a, const float* b, std::span<const Stretch> stretches,
                 std::span<const int64_t> shifts, float* dots) {
  constexpr size_t kMost = 4;
  for (size_t t = 0; t < shifts.size(); t += kMost) {
    const int64_t* some = shifts.data() + t;
    switch (std::min(kMost, shifts.size() - t)) {
      case 1:
        dot_taps<1>(a, b, stretches, some, dots + t);
        break;
      case 2:
        dot_taps<2>(a, b, stretches, some, dots + t);
        break;
      case 3:
        dot_taps<3>(a, b, stretches, some, dots + t);
        break;
      default:
        dot_taps<4>(a, b, stretches, some, dots + t);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::ops::cpu {

HWY_EXPORT(fill_line);
HWY_EXPORT(vector_size);
HWY_EXPORT(copy);
HWY_EXPORT(pack_rows_at);
HWY_EXPORT(add_shifted);
HWY_EXPORT(dot_shifted);

void fill_line(const void* source, numerics::Format format, int64_t stride, int64_t ahead,
               std::span<const Segment> segments, float* line) {
  HWY_DYNAMIC_DISPATCH(fill_line)(source, format, stride, ahead, segments, line);
}

int64_t vector_size() { return HWY_DYNAMIC_DISPATCH(vector_size)(); }

void copy(const float* in, const Moves& moves, std::span<const Shift> shifts, float* out) {
  HWY_DYNAMIC_DISPATCH(copy)(in, moves, shifts, out);
}

void pack_rows_at(const void* data, numerics::Format format, int64_t row_stride, int64_t rows,
                  std::span<const int64_t> offsets, float* strips) {
  HWY_DYNAMIC_DISPATCH(pack_rows_at)
  (data, format, row_stride, rows, offsets, register_block().rows, strips);
}

void add_shifted(const float* line, std::span<const float> factors, std::span<const int64_t> shifts,
                 const LineSums& to) {
  HWY_DYNAMIC_DISPATCH(add_shifted)(line, factors, shifts, to);
}

void dot_shifted(const float* a, const float* b, std::span<const Stretch> stretches,
                 std::span<const int64_t> shifts, float* dots) {
  HWY_DYNAMIC_DISPATCH(dot_shifted)(a, b, stretches, shifts, dots);
}

}  // namespace mantissa::ops::cpu
#endif
