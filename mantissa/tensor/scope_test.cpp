#include "mantissa/tensor/scope.h"

#include <thread>

#include <gtest/gtest.h>

namespace mantissa::tensor {
namespace {

TEST(Scope, PathsNestAndEnd) {
  EXPECT_EQ(current_scope(), "");
  {
    const Scope block("blocks.0");
    const Scope attention("attention");
    EXPECT_EQ(current_scope(), "blocks.0.attention");
  }
  EXPECT_EQ(current_scope(), "");
}

TEST(Scope, IsOfOneThread) {
  const Scope scope("outer");
  std::string seen = "unset";
  std::thread([&] { seen = current_scope(); }).join();
  EXPECT_EQ(seen, "");
}

}  // namespace
}  // namespace mantissa::tensor
