// A program of its own, because the dispatch key is claimed once a process.
#include <gtest/gtest.h>
#include <torch/library.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/base/error.h"

namespace mantissa::amp {
namespace {

TEST(Autocast, SaysThatAnotherLibraryHasTakenItsDispatchKey) {
  torch::Library other(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastIPU, __FILE__,
                       __LINE__);
  other.impl("relu", torch::CppFunction::makeFallthrough());
  try {
    const Autocast region(find_policy("torch"));
    FAIL() << "expected Unsupported";
  } catch (const Unsupported& error) {
    EXPECT_STREQ(error.what(),
                 "autocast: another library has kernels for dispatch key AutocastIPU; use mantissa "
                 "without it");
  }
  EXPECT_EQ(active_policy(), nullptr);
}

}  // namespace
}  // namespace mantissa::amp
