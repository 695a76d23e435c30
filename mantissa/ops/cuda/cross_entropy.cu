// The cross-entropy of rows of logits and its gradient: a block of threads for each row, which
// reads its logits twice.
#include "mantissa/ops/cuda/passes.h"

#include "mantissa/ops/cuda/grid.h"

namespace mantissa::ops::cuda {
namespace {

constexpr float kLeast = -0x1.fffffep127F;

/// The sum of e^(x - most) over numbers x of which `most` is the largest.
struct Exponentials {
  float most;
  double sum;
};

__device__ Exponentials joined(const Exponentials& a, const Exponentials& b) {
  const float most = a.most > b.most ? a.most : b.most;
  return {most, a.sum * static_cast<double>(expf(a.most - most)) +
                    b.sum * static_cast<double>(expf(b.most - most))};
}

__device__ Exponentials exponentials_of_block(const Exponentials& mine, Exponentials* space) {
  const auto thread = static_cast<int>(threadIdx.x);
  space[thread] = mine;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (thread < half) {
      space[thread] = joined(space[thread], space[thread + half]);
    }
    __syncthreads();
  }
  return space[0];
}

__device__ void write(const CrossEntropyRows& rows, int64_t index, float value) {
  if (rows.gradient_storage == Storage::fp32) {
    static_cast<float*>(rows.gradients)[index] = value;
  } else {
    static_cast<uint16_t*>(rows.gradients)[index] = encode(rows.gradient_storage, value);
  }
}

__global__ void each_row(const CrossEntropyRows rows) {
  __shared__ Exponentials space[kThreads];
  __shared__ double sums[kThreads];
  const auto row = static_cast<int64_t>(blockIdx.x);
  const int64_t first = row * rows.classes;
  const float* const logits = rows.logits + first;
  const int64_t target = rows.targets[row];
  const auto thread = static_cast<int64_t>(threadIdx.x);
  if (target == rows.ignore_index) {
    if (thread == 0) {
      rows.losses[row] = 0;
    }
    for (int64_t i = thread; rows.gradients != nullptr && i < rows.classes; i += kThreads) {
      write(rows, first + i, 0);
    }
    return;  // all threads of the block do
  }
  float most = kLeast;
  float sum = 0;
  double plain_sum = 0;
  for (int64_t i = thread; i < rows.classes; i += kThreads) {
    const float x = logits[i];
    if (x > most) {
      sum = sum * expf(most - x) + 1;
      most = x;
    } else {
      sum += expf(x - most);  // also of NaN
    }
    plain_sum += static_cast<double>(x);
  }
  const Exponentials all = exponentials_of_block({most, static_cast<double>(sum)}, space);
  const auto classes = static_cast<double>(rows.classes);
  const double mean = rows.smoothing == 0 ? 0 : sum_of_block(plain_sum, sums) / classes;
  const bool is_class = target >= 0 && target < rows.classes;
  const double nan = static_cast<double>(float_of(0x7FC00000U));
  if (thread == 0) {
    const double log_of_sum = static_cast<double>(all.most) + log(all.sum);
    const double at_target = is_class ? static_cast<double>(logits[target]) : nan;
    double loss = (1 - rows.smoothing) * (log_of_sum - at_target);
    if (rows.smoothing != 0) {
      loss += rows.smoothing * (log_of_sum - mean);
    }
    rows.losses[row] = loss;
  }
  if (rows.gradients == nullptr) {
    return;
  }
  __syncthreads();  // the logit of the target is read before a gradient may take its place
  const auto factor = static_cast<float>(is_class ? 1 / all.sum : nan);
  const auto share = static_cast<float>(rows.smoothing / classes);
  const auto of_target = static_cast<float>(1 - rows.smoothing);
  for (int64_t i = thread; i < rows.classes; i += kThreads) {
    float gradient = factor * expf(logits[i] - all.most) - share;
    if (i == target) {
      gradient -= of_target;
    }
    write(rows, first + i, gradient * rows.lift);
  }
}

}  // namespace

int cross_entropy(const CrossEntropyRows& rows, void* stream) {
  return MANTISSA_LAUNCH(each_row, static_cast<unsigned>(rows.rows), kThreads, stream, rows);
}

}  // namespace mantissa::ops::cuda
