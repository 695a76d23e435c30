#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

namespace mantissa::ops {

// For tests: calls `body` with the kernels of every instruction set that was compiled and that this
// processor has.
template <typename Body>
void on_every_simd_target(const Body& body) {
  const auto use = [](int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  };
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    use(target);
    body();
    use(0);
  }
}

}  // namespace mantissa::ops
