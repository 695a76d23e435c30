#pragma once

#include "mantissa/ops/cuda/kernels.h"

/// The functions of Kernels, each in the .cu file of its pass.
namespace mantissa::ops::cuda {

int gradient_sums(const GradientList& list, void* stream);
int gradient_conclusion(const GradientSums& sums, void* stream);
int adamw_list(const UpdateList& list, const AdamwFactors& factors, double log_beta1,
               double log_beta2, void* stream);
int sgd_list(const UpdateList& list, const SgdFactors& factors, void* stream);
int count_steps(const StepCounts& counts, void* stream);
int cross_entropy(const CrossEntropyRows& rows, void* stream);

}  // namespace mantissa::ops::cuda
