#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "mantissa/ops/install_cpu_kernels.h"

namespace mantissa::ops {

using Tensors = std::vector<at::Tensor>;

inline bool all_equal(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

inline bool none_equal(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return !at::equal(x, y); });
}

/// Expects of a call, made by two threads while a third one switches the kernels, that its results
/// are all those of our kernels or all those of LibTorch's. `prepare` makes the call's operands
/// from a seed and returns the call; operands are sought for which each result tells the two apart,
/// as their sums differ in order and so in some rounding. Returns whether there are any: on some
/// processors a kernel of LibTorch's adds up in our order, and there is nothing to see.
[[nodiscard]] inline bool is_wholly_ours_or_stock(
    const std::function<std::function<Tensors()>(uint64_t seed)>& prepare) {
  std::function<Tensors()> call;
  Tensors ours;
  Tensors stock;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    call = prepare(seed);
    {
      const CpuKernelsGuard guard(CpuKernels::ours);
      ours = call();
    }
    const CpuKernelsGuard guard(CpuKernels::stock);
    stock = call();
    if (none_equal(ours, stock)) {
      break;
    }
  }
  if (!none_equal(ours, stock)) {
    return false;
  }

  const CpuKernels before = cpu_kernels();
  std::atomic<bool> done = false;
  std::thread switcher([&] {
    while (!done) {
      set_cpu_kernels(CpuKernels::stock);
      std::this_thread::yield();
      set_cpu_kernels(CpuKernels::ours);
      std::this_thread::yield();
    }
  });
  std::atomic<int> faults = 0;
  std::vector<std::thread> workers;
  workers.reserve(2);
  for (int worker = 0; worker < 2; ++worker) {
    workers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const Tensors results = call();
        faults += !all_equal(results, ours) && !all_equal(results, stock) ? 1 : 0;
      }
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  done = true;
  switcher.join();
  set_cpu_kernels(before);
  EXPECT_EQ(faults, 0);
  return true;
}

}  // namespace mantissa::ops
