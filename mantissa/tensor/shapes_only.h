#pragma once

#include <functional>
#include <map>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::tensor {

/// While it lives, operations on this thread's CPU tensors allocate what they always do, in the
/// same order, and compute nothing: a step of a model of any size takes milliseconds and next to no
/// memory, and memory::Journal, peak() and live_bytes() say what it would take.
///
///     memory::install_counting_allocator();
///     const ShapesOnly shapes_only;
///     Learner learner(config);                // no weight is drawn
///     training_step(learner.parts(), ...);    // no product is computed
///     memory::peak_bytes();                   // as of a step that computes
///
/// Shapes, dtypes and temporaries are those of LibTorch's code and ours, which runs as always but
/// for the loops over numbers. Operations on integers and on tensors of one number are computed,
/// so that counts, scales and steps are right; large tensors hold zeros. Throws Unsupported for an
/// operation whose results' shapes are known to its kernel alone.
///
/// Tensors made within it must not outlive it. Of one thread, and one at a time; no other thread
/// may make tensors meanwhile. Call memory::install_counting_allocator() before.
class MANTISSA_API ShapesOnly {
 public:
  ShapesOnly();
  ~ShapesOnly();

  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

  /// Of the products and attention so far, by the format of their factors: a multiplication and an
  /// addition are two.
  std::map<numerics::Format, double> flops() const;

 private:
  memory::Allocator allocator_;
};

/// Whether a ShapesOnly lives on this thread: a kernel then leaves its loops out.
MANTISSA_API bool is_shapes_only();

/// Calls `forget` when the ShapesOnly of this thread ends: for what is kept from call to call.
MANTISSA_API void at_end_of_shapes_only(std::function<void()> forget);

/// Of a product that does not pass the dispatcher. Does nothing without a ShapesOnly.
MANTISSA_API void note_flops(numerics::Format format, double flops);

}  // namespace mantissa::tensor
