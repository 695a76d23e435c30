#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/AutogradState.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "mantissa/base/api.h"

namespace mantissa::tensor {

/// Makes what was captured that of the calling thread, until the object is gone that it returns.
using EnterAgain = std::function<std::shared_ptr<void>()>;

/// Something that a thread has set and that decides what operations compute. A layer makes its own
/// known by a static object:
///
///     const tensor::ThreadStatePart part([]() -> tensor::EnterAgain {
///       return [state = RegionState()] { return std::make_shared<RestoreRegion>(state); };
///     });
struct MANTISSA_API ThreadStatePart {
  explicit ThreadStatePart(EnterAgain (*capture)());
};

/// All that decides, besides arguments, random numbers and global switches, what this thread's
/// operations compute and how they are recorded, at one moment: dispatch keys, grad mode,
/// LibTorch's autocast, the default dtype, the scope path, and each ThreadStatePart: the autocast
/// region, TF32, the category of memory.
class MANTISSA_API ThreadState {
 public:
  /// That of this thread, now.
  ThreadState();

 private:
  friend class RestoreThreadState;

  c10::impl::LocalDispatchKeySet keys_;
  c10::AutogradState autograd_;
  std::vector<c10::ScalarType> autocast_dtypes_;  // by device
  c10::ScalarType default_dtype_;
  std::string scope_;
  std::vector<EnterAgain> parts_;
};

/// While it lives, this thread has `state`, but casts that at::autocast makes are not kept.
class MANTISSA_API RestoreThreadState {
 public:
  explicit RestoreThreadState(const ThreadState& state);
  ~RestoreThreadState();

  RestoreThreadState(const RestoreThreadState&) = delete;
  RestoreThreadState& operator=(const RestoreThreadState&) = delete;

 private:
  struct Basis;

  std::unique_ptr<Basis> basis_;
  std::vector<std::shared_ptr<void>> parts_;
};

}  // namespace mantissa::tensor
