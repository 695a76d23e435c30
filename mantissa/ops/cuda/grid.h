#pragma once

/// Grids of threads: CUDA's, HIP's or, where neither compiler is at work, those of host_grid.h, in
/// which tests run the kernels.
// Version 14 tears <<< and >>> apart.
// clang-format off
#if defined(__HIPCC__)
#include <hip/hip_runtime.h>
#define MANTISSA_LAUNCH(kernel, blocks, threads, stream, ...) \
  ((kernel) <<<dim3(blocks), dim3(threads), 0,             \
   static_cast<hipStream_t>(stream)>>>(__VA_ARGS__), static_cast<int>(hipGetLastError()))
#define MANTISSA_GRID_ERROR_TEXT(error) hipGetErrorString(static_cast<hipError_t>(error))
#elif defined(__CUDACC__)
#include <cuda_runtime.h>
#define MANTISSA_LAUNCH(kernel, blocks, threads, stream, ...) \
  ((kernel) <<<dim3(blocks), dim3(threads), 0,             \
   static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__), static_cast<int>(cudaGetLastError()))
#define MANTISSA_GRID_ERROR_TEXT(error) cudaGetErrorString(static_cast<cudaError_t>(error))
#else
#include "mantissa/ops/cuda/host_grid.h"
#endif
// clang-format on

#include "mantissa/ops/cuda/kernels.h"

namespace mantissa::ops::cuda {

/// The sum of `mine` over the threads of a block, in every thread: a tree, always the same one.
/// `space` is one number a thread, in shared memory.
__device__ inline double sum_of_block(double mine, double* space) {
  const int thread = static_cast<int>(threadIdx.x);
  space[thread] = mine;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (thread < half) {
      space[thread] += space[thread + half];
    }
    __syncthreads();
  }
  const double total = space[0];
  __syncthreads();
  return total;
}

struct alignas(16) FourFloats {
  float values[kVector];
};

struct alignas(8) FourPatterns {
  uint16_t values[kVector];
};

/// `count` elements, up to four, from `begin` on; the others become 0.
__device__ inline FourFloats read_floats(const float* from, int64_t begin, int count,
                                         bool is_aligned) {
  if (is_aligned && count == kVector) {
    return *reinterpret_cast<const FourFloats*>(from + begin);
  }
  FourFloats result;
  for (int i = 0; i < kVector; ++i) {
    result.values[i] = i < count ? from[begin + i] : 0;
  }
  return result;
}

__device__ inline FourPatterns read_patterns(const uint16_t* from, int64_t begin, int count,
                                             bool is_aligned) {
  if (is_aligned && count == kVector) {
    return *reinterpret_cast<const FourPatterns*>(from + begin);
  }
  FourPatterns result;
  for (int i = 0; i < kVector; ++i) {
    result.values[i] = i < count ? from[begin + i] : 0;
  }
  return result;
}

__device__ inline FourFloats read(Storage storage, const void* from, int64_t begin, int count,
                                  bool is_aligned) {
  if (storage == Storage::fp32) {
    return read_floats(static_cast<const float*>(from), begin, count, is_aligned);
  }
  const FourPatterns patterns =
      read_patterns(static_cast<const uint16_t*>(from), begin, count, is_aligned);
  FourFloats result;
  for (int i = 0; i < kVector; ++i) {
    result.values[i] = decode(storage, patterns.values[i]);
  }
  return result;
}

__device__ inline void write_floats(const FourFloats& numbers, float* to, int64_t begin, int count,
                                    bool is_aligned) {
  if (is_aligned && count == kVector) {
    *reinterpret_cast<FourFloats*>(to + begin) = numbers;
    return;
  }
  for (int i = 0; i < kVector; ++i) {  // whose length is known, so that numbers stay in registers
    if (i < count) {
      to[begin + i] = numbers.values[i];
    }
  }
}

__device__ inline void write_patterns(const FourPatterns& patterns, uint16_t* to, int64_t begin,
                                      int count, bool is_aligned) {
  if (is_aligned && count == kVector) {
    *reinterpret_cast<FourPatterns*>(to + begin) = patterns;
    return;
  }
  for (int i = 0; i < kVector; ++i) {
    if (i < count) {
      to[begin + i] = patterns.values[i];
    }
  }
}

/// The tensor of a list that piece number `piece` is of.
__device__ inline int tensor_of(const int32_t* first_piece, int size, int32_t piece) {
  int low = 0;
  int high = size;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (first_piece[middle] <= piece) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace mantissa::ops::cuda
