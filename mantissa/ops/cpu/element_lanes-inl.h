// Passes over arrays of FP32, BF16 and FP16 elements, a vector of FP32 lanes at a time. Included
// once for each instruction set by files that Highway compiles so.
#if defined(MANTISSA_OPS_CPU_ELEMENT_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_OPS_CPU_ELEMENT_LANES_INL_H
#undef MANTISSA_OPS_CPU_ELEMENT_LANES_INL_H
#else
#define MANTISSA_OPS_CPU_ELEMENT_LANES_INL_H
#endif

#include <algorithm>
#include <type_traits>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "mantissa/ops/cpu/read_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::ops::cpu {
namespace HWY_NAMESPACE {
// Elements of a step of a pass: FP32 ones fill a cache line, and at least a vector.
constexpr int64_t kStep = std::max<int64_t>(16, kLanes);

// The processor foresees reads within a page, and too late for several arrays at once.
constexpr int64_t kAhead = 512;

template <Format kFormat>
struct Elements : Reader<kFormat> {
  using Type = typename Reader<kFormat>::Element;
  /// Rounds to nearest even.
  static HWY_INLINE void write(Floats numbers, Type* to) {
    if constexpr (kFormat == Format::fp32) {
      hn::StoreU(numbers, kFloats, to);
    } else {
      hn::StoreU(lanes::encode_stored<kFormat>(numbers), lanes::StoredTag<kFormat>(), to);
    }
  }
};

// The last, partial step of an array.
template <typename T>
struct Rest {
  Rest(T* source, int64_t size) : source_(source), size_(size) {
    std::copy(source, source + size, elements);
  }
  ~Rest() {
    if constexpr (!std::is_const_v<T>) {
      std::copy(elements, elements + size_, source_);
    }
  }
  Rest(const Rest&) = delete;
  Rest& operator=(const Rest&) = delete;

  HWY_ALIGN std::remove_const_t<T> elements[kStep] = {};

 private:
  T* source_;
  int64_t size_;
};

// Calls body(pointers...) for every vector of arrays of `count` elements, for the last vectors with
// pointers to copies padded with zeros. Those of arrays that are not const are written back.
template <typename Body, typename... T>
HWY_INLINE void for_vectors(int64_t count, const Body& body, T*... arrays) {
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    (hwy::Prefetch(arrays + i + kAhead), ...);
    for (int64_t j = 0; j < kStep; j += kLanes) {
      body((arrays + i + j)...);
    }
  }
  if (i < count) {
    [&](Rest<T>&&... rest) HWY_ATTR {
      for (int64_t j = 0; j < kStep; j += kLanes) {
        body(static_cast<T*>(rest.elements + j)...);
      }
    }(Rest<T>(arrays + i, count - i)...);
  }
}

// Calls function.operator()<format>() for FP32, BF16 or FP16.
template <typename Function>
HWY_INLINE void with_format(Format format, const Function& function) {
  switch (format) {
    case Format::bf16:
      return function.template operator()<Format::bf16>();
    case Format::fp16:
      return function.template operator()<Format::fp16>();
    default:
      return function.template operator()<Format::fp32>();
  }
}

// Calls function.operator()<Elements of the model...>() for the model of `arrays`, if any.
template <typename Arrays, typename Function>
HWY_INLINE void with_model(const Arrays& arrays, const Function& function) {
  if (arrays.model == nullptr) {
    function.template operator()<>();
  } else if (arrays.model_format == Format::bf16) {
    function.template operator()<Elements<Format::bf16>>();
  } else {
    function.template operator()<Elements<Format::fp16>>();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::ops::cpu
HWY_AFTER_NAMESPACE();

#endif
