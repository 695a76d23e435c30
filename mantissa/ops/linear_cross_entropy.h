#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::ops {

/// As the arguments of at::cross_entropy_loss.
struct LinearCrossEntropyOptions {
  at::Reduction::Reduction reduction = at::Reduction::Mean;  // or Sum
  int64_t ignore_index = -100;  // rows with this target count nothing, in the mean neither
  double label_smoothing = 0;   // from 0 to 1
};

/// The cross-entropy of a linear layer's logits, in chunks of rows: the logits are never whole.
///
///     at::cross_entropy_loss(at::linear(input, weight, bias), targets, ...)
///
/// `input` (N, D), `weight` (V, D) and `bias` (V) of one dtype, FP32, BF16 or FP16, of any strides;
/// `targets` (N) int64, each a class from 0 to V - 1 or `ignore_index`. 0-d FP32. The mean over no
/// row is NaN, with gradients of 0, as in LibTorch. FP64 gives FP64, by ATen operations.
///
/// On the CPU the factors of 16 bits, or with TF32 on (ops/tf32.h) the factors rounded to that, are
/// multiplied and summed in FP32, and logits and their gradients stay FP32 - what LibTorch rounds
/// to 16 bits between its two operations. The loss is summed in FP64. Results do not depend on the
/// number of threads. Where the processor has units for a 16-bit format, and on other devices, the
/// same is done with ATen operations: there the gradients of logits are rounded to the format of
/// `input`, and so are the logits but on CUDA.
///
/// The gradients are computed in the forward pass, when any is needed, and kept in FP32: backward
/// multiplies them by the gradient of the loss, such as a loss scale, and only then rounds them to
/// their dtypes. It cannot be differentiated once more. Besides them it takes the memory of one
/// chunk of logits: 384 rows, on other devices than the CPU 4,096 and their gradients too, or 4 MiB
/// where that is more rows.
///
/// It is the dispatcher's operation mantissa::linear_cross_entropy, which policies treat as they
/// treat `linear` where they do not name it. Throws InvalidArgument for other shapes, dtypes and,
/// on the CPU, targets. On CUDA, where nothing waits to look, the loss of a target that is no class
/// is NaN.
MANTISSA_API at::Tensor linear_cross_entropy(const at::Tensor& input, const at::Tensor& weight,
                                             const std::optional<at::Tensor>& bias,
                                             const at::Tensor& targets,
                                             const LinearCrossEntropyOptions& options = {});

/// A loss with its gradients, none of them scaled.
struct LinearCrossEntropy {
  at::Tensor loss;
  at::Tensor grad_input;
  at::Tensor grad_weight;
  at::Tensor grad_bias;
};

/// The definition, one number after the other in FP64: what the operation is tested against.
MANTISSA_API LinearCrossEntropy linear_cross_entropy_reference(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
    const at::Tensor& targets, const LinearCrossEntropyOptions& options = {});

}  // namespace mantissa::ops
