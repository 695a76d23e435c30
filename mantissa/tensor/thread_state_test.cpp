#include "mantissa/tensor/thread_state.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <gtest/gtest.h>

#include "mantissa/tensor/memory.h"
#include "mantissa/tensor/scope.h"

namespace mantissa::tensor {
namespace {

thread_local int number = 0;

struct NumberScope {
  explicit NumberScope(int value) : before(std::exchange(number, value)) {}
  ~NumberScope() { number = before; }
  NumberScope(const NumberScope&) = delete;
  NumberScope& operator=(const NumberScope&) = delete;
  int before;
};

const ThreadStatePart part([]() -> EnterAgain {
  return [value = number] { return std::make_shared<NumberScope>(value); };
});

struct Seen {
  int number = tensor::number;
  std::string scope = current_scope();
  bool grad_mode = at::GradMode::is_enabled();
  at::ScalarType default_dtype = c10::get_default_dtype_as_scalartype();

  bool operator==(const Seen&) const = default;
};

TEST(ThreadState, IsEnteredAgainInAnotherThreadAndLeft) {
  std::optional<ThreadState> state;
  Seen there;
  {
    const NumberScope scope_of_number(7);
    const Scope scope("here");
    const at::NoGradGuard no_grad;
    state.emplace();
    there = Seen();
  }
  const Seen here;
  EXPECT_FALSE(here == there);
  std::thread([&] {
    const Seen before;
    {
      const RestoreThreadState restored(*state);
      EXPECT_TRUE(Seen() == there);
    }
    EXPECT_TRUE(Seen() == before);
  }).join();
  EXPECT_TRUE(Seen() == here);
}

TEST(ThreadState, HasTheDefaultDtype) {
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(at::kDouble));
  const ThreadState state;
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(at::kFloat));
  {
    const RestoreThreadState restored(state);
    EXPECT_EQ(c10::get_default_dtype_as_scalartype(), at::kDouble);
  }
  EXPECT_EQ(c10::get_default_dtype_as_scalartype(), at::kFloat);
}

TEST(ThreadState, HasTheCategoryOfMemory) {
  memory::install_counting_allocator();
  std::optional<ThreadState> state;
  {
    const memory::CategoryScope optimizer(memory::Category::optimizer);
    state.emplace();
  }
  const int64_t before = memory::live_bytes().of(memory::Category::optimizer);
  const RestoreThreadState restored(*state);
  const at::Tensor tensor = at::empty({100});
  EXPECT_EQ(memory::live_bytes().of(memory::Category::optimizer), before + 400);
}

}  // namespace
}  // namespace mantissa::tensor
