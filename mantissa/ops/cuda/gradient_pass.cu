// One reading of all gradients: the sum of squares of each piece, then what they come to.
#include "mantissa/ops/cuda/passes.h"

#include "mantissa/ops/cuda/grid.h"

namespace mantissa::ops::cuda {
namespace {

__global__ void piece_sums(const GradientList list) {
  __shared__ double space[kThreads];
  __shared__ GradientTensor tensor;
  __shared__ int64_t begin;
  const auto piece = static_cast<int32_t>(blockIdx.x);
  if (threadIdx.x == 0) {
    const int index = tensor_of(list.first_piece, list.size, piece);
    tensor = list.tensors[index];
    begin = (piece - list.first_piece[index]) * kGradientPiece;
  }
  __syncthreads();
  const float factor = list.scale == nullptr ? 1.0F : inverse_of(*list.scale);
  const int64_t end = begin + kGradientPiece < tensor.count ? begin + kGradientPiece : tensor.count;
  double sum = 0;
  for (int64_t i = begin + static_cast<int64_t>(threadIdx.x) * kVector; i < end;
       i += kThreads * kVector) {
    const int count = end - i < kVector ? static_cast<int>(end - i) : kVector;
    const FourFloats numbers = read(tensor.storage, tensor.data, i, count, tensor.is_aligned);
    for (int j = 0; j < kVector; ++j) {
      // Not 0 times the factor, which may be NaN.
      const float product = j < count ? numbers.values[j] * factor : 0;
      const auto value = static_cast<double>(product);
      sum += value * value;  // the product is exact
    }
  }
  const double total = sum_of_block(sum, space);
  if (threadIdx.x == 0) {
    list.sums[piece] = total;
  }
}

__global__ void conclude(const GradientSums of) {
  __shared__ double space[kThreads];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < of.count; i += kThreads) {
    sum += of.sums[i];
  }
  const double squares = sum_of_block(sum, space);
  if (threadIdx.x != 0) {
    return;
  }
  const float inverse = of.scale == nullptr ? 1.0F : inverse_of(*of.scale);
  const bool is_usable = is_finite(inverse) && inverse != 0;
  const bool is_finite_sum = squares < 0x1p1023 * 2;  // false of NaN
  const bool found_inf = of.count > 0 && (!is_finite_sum || !is_usable);
  constexpr double kMax = 0x1.fffffep127;
  double norm = sqrt(squares);
  if (!found_inf && norm > kMax) {
    norm = kMax;
  }
  *of.found_inf = found_inf ? 1.0F : 0.0F;
  *of.norm = static_cast<float>(norm);
}

}  // namespace

int gradient_sums(const GradientList& list, void* stream) {
  return MANTISSA_LAUNCH(piece_sums, static_cast<unsigned>(list.first_piece[list.size]), kThreads,
                         stream, list);
}

int gradient_conclusion(const GradientSums& sums, void* stream) {
  return MANTISSA_LAUNCH(conclude, 1, kThreads, stream, sums);
}

}  // namespace mantissa::ops::cuda
