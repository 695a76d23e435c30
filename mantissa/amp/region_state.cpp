#include "mantissa/amp/region_state.h"

#include <memory>

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "mantissa/amp/active_region.h"
#include "mantissa/amp/autocast.h"
#include "mantissa/tensor/scope.h"
#include "mantissa/tensor/thread_state.h"

namespace mantissa::amp {
namespace {

const tensor::ThreadStatePart part([]() -> tensor::EnterAgain {
  return [state = RegionState()] { return std::make_shared<RestoreRegion>(state); };
});

}  // namespace

RegionState::RegionState()
    : policy_(active_region().policy),
      formats_(active_region().formats),
      included_(c10::impl::tls_is_dispatch_key_included(kAutocastKey)),
      excluded_(c10::impl::tls_is_dispatch_key_excluded(kAutocastKey)),
      scope_(tensor::current_scope()) {}

RestoreRegion::RestoreRegion(const RegionState& state) : depth_(begin_region()) { enter(state); }

RestoreRegion::~RestoreRegion() {
  end_region(depth_);
  enter(outer_);
}

void RestoreRegion::enter(const RegionState& state) {
  active_region().policy = state.policy_;
  active_region().formats = state.formats_;
  c10::impl::tls_set_dispatch_key_included(kAutocastKey, state.included_);
  c10::impl::tls_set_dispatch_key_excluded(kAutocastKey, state.excluded_);
  tensor::set_scope(state.scope_);
}

}  // namespace mantissa::amp
