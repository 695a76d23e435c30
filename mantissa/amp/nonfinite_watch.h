#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "mantissa/base/api.h"

namespace mantissa::amp {

/// Where the first value that is not finite came from.
struct NonfiniteOrigin {
  std::string operation;     // `mm`; empty: none was seen
  std::string within;        // the outermost operation around it, when that is another: `linear`
  std::string scope;         // tensor::Scope of the forward operation; empty: outside of any
  bool in_backward = false;  // in the gradient of that operation
  double value = 0;          // inf, -inf or nan

  bool operator==(const NonfiniteOrigin&) const = default;
};

/// Watches every operation of this thread, as long as it lives, for the first that makes a value
/// that is not finite from finite ones. An operation that is given an infinity, as masked_fill by
/// -inf, makes none. Looks at every argument and result: several times the cost of the operations.
///
/// It stands above autocast: a cast that overflows is `copy_` within the operation that needed it.
/// The scope of a gradient is that of its forward operation, when the watch has seen that too.
/// One watch a thread at a time. Gradients of the CPU are computed on the calling thread; those of
/// other devices on threads that it does not see.
class MANTISSA_API NonfiniteWatch {
 public:
  NonfiniteWatch();
  ~NonfiniteWatch();

  NonfiniteWatch(const NonfiniteWatch&) = delete;
  NonfiniteWatch& operator=(const NonfiniteWatch&) = delete;

  const NonfiniteOrigin& origin() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
  uint64_t handle_ = 0;
};

}  // namespace mantissa::amp
