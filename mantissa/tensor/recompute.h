#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"

namespace mantissa::tensor {

using Tensors = std::vector<at::Tensor>;
using TensorFunction = std::function<Tensors(const Tensors&)>;

/// function(inputs), of which the inputs alone are kept for backward: what autograd saves within is
/// dropped, and made again by calling `function` once more when backward first needs some of it
/// (activation checkpointing: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
///
///     at::Tensor y = recompute(x, [block](const at::Tensor& in) { return block.forward(in); });
///
/// Gradients are those of a plain call, bit for bit: the graph is the plain one, and the second
/// call has the autocast region and its scopes, LibTorch's autocast, grad mode and default dtype
/// (ThreadState) and the numbers of LibTorch's default CPU generator that the first one had. Both
/// leave the generator as one call does; no other thread may draw from it during the second one,
/// and other generators, those of devices too, are not put back. The second call ends at the last
/// tensor that backward needs. Parameters that `function` captures get their gradients, and stay
/// what autograd keeps; calls nest; retain_graph and create_graph work, each backward computes
/// anew. Without grad mode it is a plain call.
///
/// `function` is kept until the graph is gone: capture by value. It must compute the same when it
/// is called again: what it reads may not change until backward, and what it writes, such as
/// running statistics, is written twice. Noticed are, each with an Error or InvalidArgument of one
/// line: an input that it changes in place, an input that has changed since, and a parameter
/// that has, where autograd saves it or what was made of it; another number of saved tensors, other
/// shapes or dtypes of them. It cannot call backward itself
/// (Unsupported).
MANTISSA_API Tensors recompute(const Tensors& inputs, const TensorFunction& function);

MANTISSA_API at::Tensor recompute(const at::Tensor& input,
                                  const std::function<at::Tensor(const at::Tensor&)>& function);

/// Where the inputs can be made again as well: `sources` are kept in place of them, and
/// derive(sources), called without gradients, gives the inputs once more.
MANTISSA_API Tensors recompute(const Tensors& inputs, const TensorFunction& function,
                               const Tensors& sources, const TensorFunction& derive);

/// For an operation that saves tensors after it has its result: true in a recomputation of which
/// the next `saves` saved tensors are the last, so that nobody reads the result.
MANTISSA_API bool recomputation_ends_within(int64_t saves);

}  // namespace mantissa::tensor
