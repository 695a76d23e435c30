#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include <ucontext.h>

/// A grid of threads on the host, for tests: the kernels as they are, one block after the other,
/// its threads in turns that change at __syncthreads(). Memory that threads of a block share is
/// static.
namespace mantissa::ops::cuda::host_grid {

struct Index {
  unsigned x;
};

/// Called around each launch, such as to let the host touch the memory of a device.
struct Hooks {
  std::function<void()> before;
  std::function<void()> after;
};

inline Hooks& hooks() {
  static Hooks instance;
  return instance;
}

class Grid {
 public:
  static Grid& instance() {
    static Grid grid;
    return grid;
  }

  int launch(unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
    if (blocks == 0) {
      return 1;  // as of CUDA: an invalid configuration
    }
    if (hooks().before) {
      hooks().before();
    }
    kernel_ = &kernel;
    while (fibers_.size() < threads) {
      fibers_.push_back(std::make_unique<Fiber>());
    }
    for (block_.x = 0; block_.x < blocks; ++block_.x) {
      run_block(threads);
    }
    if (hooks().after) {
      hooks().after();
    }
    return 0;
  }

  void synchronize() { swapcontext(&fibers_[thread_.x]->context, &scheduler_); }

  const Index& thread() const { return thread_; }
  const Index& block() const { return block_; }

 private:
  static constexpr size_t kStack = size_t{1} << 16;

  struct Fiber {
    ucontext_t context = {};
    std::vector<char> stack = std::vector<char>(kStack);
    bool is_done = false;
  };

  static void enter() {
    Grid& grid = instance();
    (*grid.kernel_)();
    grid.fibers_[grid.thread_.x]->is_done = true;
  }

  void run_block(unsigned threads) {
    for (unsigned i = 0; i < threads; ++i) {
      Fiber& fiber = *fibers_[i];
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data();
      fiber.context.uc_stack.ss_size = fiber.stack.size();
      fiber.context.uc_link = &scheduler_;
      fiber.is_done = false;
      makecontext(&fiber.context, &Grid::enter, 0);
    }
    for (unsigned left = threads; left > 0;) {
      left = 0;
      for (thread_.x = 0; thread_.x < threads; ++thread_.x) {
        Fiber& fiber = *fibers_[thread_.x];
        if (!fiber.is_done) {
          swapcontext(&scheduler_, &fiber.context);
          left += fiber.is_done ? 0 : 1;
        }
      }
    }
  }

  const std::function<void()>* kernel_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  ucontext_t scheduler_ = {};
  Index thread_ = {};
  Index block_ = {};
};

template <typename T>
T atomic_add(T* to, T value) {
  const T before = *to;
  *to += value;
  return before;
}

}  // namespace mantissa::ops::cuda::host_grid

// What CUDA's and HIP's compilers know.
// NOLINTBEGIN(bugprone-reserved-identifier)
#define __global__
#define __device__
#define __shared__ static
#define threadIdx (::mantissa::ops::cuda::host_grid::Grid::instance().thread())
#define blockIdx (::mantissa::ops::cuda::host_grid::Grid::instance().block())
#define __syncthreads() ::mantissa::ops::cuda::host_grid::Grid::instance().synchronize()
#define atomicAdd(to, value) ::mantissa::ops::cuda::host_grid::atomic_add(to, value)
#define MANTISSA_LAUNCH(kernel, blocks, threads, stream, ...)                            \
  (static_cast<void>(stream), ::mantissa::ops::cuda::host_grid::Grid::instance().launch( \
                                  blocks, threads, [&] { kernel(__VA_ARGS__); }))
#define MANTISSA_GRID_ERROR_TEXT(error) \
  ((error) == 0 ? "no error" : "invalid configuration argument")
// NOLINTEND(bugprone-reserved-identifier)
