// Numbers of any format that is read, as vectors of FP32. Included once for each instruction
// set by files that Highway compiles so.
#if defined(MANTISSA_OPS_CPU_READ_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_OPS_CPU_READ_LANES_INL_H
#undef MANTISSA_OPS_CPU_READ_LANES_INL_H
#else
#define MANTISSA_OPS_CPU_READ_LANES_INL_H
#endif

#include <algorithm>

#include <hwy/highway.h>

#include "mantissa/numerics/convert_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace lanes = numerics::kernels::HWY_NAMESPACE;
using numerics::Format;

using lanes::Floats;
using lanes::kFloats;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(kFloats));

template <Format kFormat>
struct Reader {
  using Element = lanes::Stored<kFormat>;
  static HWY_INLINE Floats read(const Element* in) {
    return lanes::decode_stored<kFormat>(hn::LoadU(lanes::StoredTag<kFormat>(), in));
  }
};

template <>
struct Reader<Format::fp32> {
  using Element = float;
  static HWY_INLINE Floats read(const float* in) { return hn::LoadU(kFloats, in); }
};

template <>
struct Reader<Format::tf32> {
  using Element = float;
  static HWY_INLINE Floats read(const float* in) {
    return lanes::round_lanes<Format::tf32>(hn::LoadU(kFloats, in));
  }
};

// Calls `call` with the reader of a format.
template <typename Call>
HWY_INLINE void with_reader(Format format, const Call& call) {
  switch (format) {
    case Format::bf16:
      return call(Reader<Format::bf16>());
    case Format::fp16:
      return call(Reader<Format::fp16>());
    case Format::tf32:
      return call(Reader<Format::tf32>());
    case Format::fp32:
      return call(Reader<Format::fp32>());
    case Format::fp8_e4m3:
    case Format::fp8_e5m2:
      return;  // no factors
  }
}

// The first `count` lanes are those of `in`, the others zeros; nothing else is read.
template <typename Source>
HWY_INLINE Floats read_first(const typename Source::Element* in, int64_t count) {
  HWY_ALIGN typename Source::Element whole[kLanes] = {};
  for (int64_t i = 0; i < std::min(count, kLanes); ++i) {
    whole[i] = in[i];
  }
  return Source::read(whole);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#endif
