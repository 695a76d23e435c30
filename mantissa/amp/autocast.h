#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/amp/policy.h"
#include "mantissa/base/api.h"

namespace mantissa::amp {

struct CompiledPolicy;
class ParameterFormats;

/// A region of this thread in which `policy` decides the precision of each operation, on every
/// device. Regions nest; the innermost one rules. They end in the thread that they began in, in the
/// reverse of their order: any other order ends the process with one line. Close a region before
/// backward(): each backward operation then runs in the format of its forward operation.
///
///     const amp::Policy policy = amp::find_policy("torch-fixed compute=bf16");
///     at::Tensor loss;
///     {
///       const amp::Autocast region(policy);
///       loss = at::cross_entropy_loss(model.forward(x), y);
///     }
///     loss.backward();
///
/// A policy is compiled at its first use, which registers kernels for the operations that no
/// policy has listed so far, and looked up afterwards. The first use belongs before
/// other threads compute. Other threads, those of at::parallel_for too, are outside of the region.
/// A parameter is cast once a region: see clear_cast_cache().
class MANTISSA_API Autocast {
 public:
  /// Throws InvalidArgument for a policy that parse_policy would refuse, for one with entries for
  /// parameters, which need to be known, and inside a region of at::autocast, whose casts would
  /// come on top; Unsupported when another library has taken the dispatch key AutocastIPU.
  explicit Autocast(const Policy& policy);

  /// With what the policy says of parameters. `formats` must outlive the region.
  Autocast(const Policy& policy, const ParameterFormats& formats);

  /// A region without casts inside another; 16-bit tensors stay 16-bit.
  ///
  ///     const auto full = amp::Autocast::disabled();
  static Autocast disabled();

  ~Autocast();

  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  static void* operator new(size_t) = delete;  // one that is forgotten would never end

 private:
  Autocast(const CompiledPolicy* policy, const ParameterFormats* formats);

  const CompiledPolicy* outer_policy_;
  const ParameterFormats* outer_formats_;
  int depth_;
  bool outer_included_;
  bool outer_excluded_;
};

/// Compiles a policy, as its first region would: before threads start. Throws as Autocast does for
/// a policy that is not valid.
MANTISSA_API void prepare(const Policy& policy);

/// The policy of this thread's region; null outside of regions and in a disabled one.
MANTISSA_API const Policy* active_policy();

/// What the regions of this thread have done since it started; take differences.
struct CastStatistics {
  int64_t casts = 0;       // tensors
  int64_t cache_hits = 0;  // casts saved
};

MANTISSA_API CastStatistics cast_statistics();

/// Casts of FP32 parameters to 16 bits are kept until this thread leaves its outermost region, or
/// until the parameter changes. Frees them earlier: in a long region, or after a parameter was
/// written without its version being raised (through `.data()` or a raw pointer).
MANTISSA_API void clear_cast_cache();

/// Bytes of the casts that this thread keeps: at most half of those of the FP32 parameters for each
/// 16-bit format in use. Casts of parameters that are freed inside the region go as others come;
/// with reduce=compute, as in torch, they and their parameters stay until the region ends.
MANTISSA_API int64_t cast_cache_bytes();

}  // namespace mantissa::amp
