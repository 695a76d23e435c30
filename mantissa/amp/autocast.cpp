#include "mantissa/amp/autocast.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "mantissa/amp/active_region.h"
#include "mantissa/amp/parameter_formats.h"
#include "mantissa/base/error.h"

namespace mantissa::amp {
namespace {

thread_local ActiveRegion active;

// The autocast keys of devices are excluded, except while at::autocast is on.
bool at_autocast_is_on() {
  using c10::DispatchKey;
  return !c10::impl::tls_is_dispatch_key_excluded(DispatchKey::AutocastCPU) ||
         !c10::impl::tls_is_dispatch_key_excluded(DispatchKey::AutocastCUDA);
}

const CompiledPolicy& checked(const Policy& policy) {
  MANTISSA_CHECK(!at_autocast_is_on(), InvalidArgument,
                 "autocast: at::autocast is on in this thread; leave its region first");
  return compiled(policy);
}

const CompiledPolicy& without_parameters(const Policy& policy) {
  MANTISSA_CHECK(policy.parameters.empty(), InvalidArgument, "autocast: policy ", policy.base,
                 " has a format for the parameters \"", policy.parameters.begin()->first,
                 "\"; pass the amp::ParameterFormats of your model to the region as well");
  return checked(policy);
}

}  // namespace

ActiveRegion& active_region() { return active; }

int begin_region() { return ++active.depth; }

void end_region(int depth) {
  MANTISSA_CHECK(
      active.depth == depth, InvalidArgument, "autocast: a region ends as number ", depth,
      " while number ", active.depth,
      " of this thread is the innermost; end regions in the thread that they began in, in "
      "the reverse of their order");
  if (--active.depth == 0) {
    clear_cast_cache();
  }
}

const CompiledPolicy* active_compiled_policy() { return active.policy; }

const ParameterFormats* active_parameter_formats() { return active.formats; }

Autocast::Autocast(const Policy& policy) : Autocast(&without_parameters(policy), nullptr) {}

Autocast::Autocast(const Policy& policy, const ParameterFormats& formats)
    : Autocast(&checked(policy), formats.has_own() ? &formats : nullptr) {}

Autocast::Autocast(const CompiledPolicy* policy, const ParameterFormats* formats)
    : outer_policy_(active.policy),
      outer_formats_(active.formats),
      depth_(begin_region()),
      outer_included_(c10::impl::tls_is_dispatch_key_included(kAutocastKey)),
      outer_excluded_(c10::impl::tls_is_dispatch_key_excluded(kAutocastKey)) {
  const bool on = policy != nullptr;
  active.policy = policy;
  active.formats = formats;
  c10::impl::tls_set_dispatch_key_included(kAutocastKey, on);
  c10::impl::tls_set_dispatch_key_excluded(kAutocastKey, !on);
}

Autocast Autocast::disabled() { return {nullptr, nullptr}; }

Autocast::~Autocast() {
  end_region(depth_);
  active.policy = outer_policy_;
  active.formats = outer_formats_;
  c10::impl::tls_set_dispatch_key_included(kAutocastKey, outer_included_);
  c10::impl::tls_set_dispatch_key_excluded(kAutocastKey, outer_excluded_);
}

void prepare(const Policy& policy) { (void)compiled(policy); }

const Policy* active_policy() {
  return active.policy == nullptr ? nullptr : &active.policy->policy;
}

}  // namespace mantissa::amp
