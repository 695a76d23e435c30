#pragma once

#include <string>

#include "mantissa/base/api.h"

namespace mantissa::amp {

struct CompiledPolicy;
class ParameterFormats;

/// What this thread's autocast region says at one moment, and its scope path: to be entered again
/// where a part of the forward pass runs later or elsewhere, such as a recomputation in backward
/// (activation checkpointing) or a thread of the user's own.
///
///     const amp::RegionState state;                  // in forward
///     ...
///     const amp::RestoreRegion region(state);        // in the recomputation
///     at::Tensor y = block(x);                       // the same casts as in forward
class MANTISSA_API RegionState {
 public:
  /// That of this thread, now: of no region, of a disabled one, or of one with a policy.
  RegionState();

 private:
  friend class RestoreRegion;

  const CompiledPolicy* policy_;
  const ParameterFormats* formats_;
  bool included_;
  bool excluded_;
  std::string scope_;
};

/// A region as it was captured, with its own casts: those that the forward pass kept may be gone.
/// Parameter formats of the captured region must still live.
class MANTISSA_API RestoreRegion {
 public:
  explicit RestoreRegion(const RegionState& state);
  ~RestoreRegion();

  RestoreRegion(const RestoreRegion&) = delete;
  RestoreRegion& operator=(const RestoreRegion&) = delete;

 private:
  void enter(const RegionState& state);

  RegionState outer_;
  int depth_;
};

}  // namespace mantissa::amp
