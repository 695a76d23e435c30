// What a device that runs behind the host sees of a PendingOutcome.
#include <deque>
#include <functional>

#include <ATen/ops/from_blob.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "mantissa/optim/pending_outcome.h"

namespace mantissa::optim {
namespace {

const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);

// A queue that runs when the host waits, and then only as far as it waits for.
struct Queue {
  std::deque<std::function<void()>> tasks;
  size_t done = 0;

  void run_until(size_t end) {
    for (; done < end; ++done) {
      tasks[done]();
    }
  }
};

Queue queue;

// An event is the length of the queue when it was recorded.
struct QueueGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    *event = new size_t(queue.tasks.size());
  }
  void synchronizeEvent(void* event) const override {
    queue.run_until(*static_cast<size_t*>(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<size_t*>(event);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, QueueGuard)

at::Tensor enqueue_copy(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  EXPECT_TRUE(non_blocking);
  queue.tasks.emplace_back([from, to] {
    *static_cast<bool*>(to.mutable_data_ptr()) = *static_cast<const bool*>(from.const_data_ptr());
  });
  return to;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_copy_from", TORCH_FN(enqueue_copy));
}

at::Tensor on_device(bool* value) {
  return at::for_blob(value, {})
      .options(at::TensorOptions(at::kBool).device(kDevice))
      .target_device(kDevice)
      .make_tensor();
}

TEST(PendingOutcomeOnADevice, AReadWaitsForItsStepAndNotForTheNext) {
  bool first = false;
  bool second = false;
  const auto enqueue_step = [&](bool* applied, bool value) {
    queue.tasks.emplace_back([=] { *applied = value; });
    return PendingOutcome(on_device(applied));
  };
  const PendingOutcome one = enqueue_step(&first, true);
  const PendingOutcome two = enqueue_step(&second, false);
  EXPECT_EQ(queue.done, 0U) << "waited for the device";
  EXPECT_EQ(one.read(), StepOutcome::applied);
  EXPECT_EQ(queue.done, 2U) << "the step and its answer";
  EXPECT_EQ(one.read(), StepOutcome::applied);
  EXPECT_EQ(queue.done, 2U);
  EXPECT_EQ(two.read(), StepOutcome::skipped);
  EXPECT_EQ(queue.done, 4U);
}

}  // namespace
}  // namespace mantissa::optim
