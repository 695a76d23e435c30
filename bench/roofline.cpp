#include "bench/roofline.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include "mantissa/base/error.h"

namespace mantissa::bench {
namespace {

constexpr size_t kSmallPage = size_t{4} << 10;
constexpr size_t kHugePage = size_t{2} << 20;

double seconds_of(const std::function<void()>& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of `repeats` after one that warms up: nothing can make a machine faster than it is.
double least_seconds(int repeats, const std::function<void()>& action) {
  action();
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    least = std::min(least, seconds_of(action));
  }
  return least;
}

class Mapping {
 public:
  Mapping(size_t bytes, int advice) : whole_(bytes + kHugePage) {
    begin_ = mmap(nullptr, whole_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MANTISSA_CHECK(begin_ != MAP_FAILED, IoError, "bench: ", bytes,
                   " bytes could not be mapped; free some memory");
    // What the system makes of it shows in the times.
    madvise(begin_, whole_, advice);
  }
  ~Mapping() { munmap(begin_, whole_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // At the start of a huge page.
  char* data() const {
    const auto address = reinterpret_cast<uintptr_t>(begin_);
    return reinterpret_cast<char*>((address + kHugePage - 1) / kHugePage * kHugePage);
  }

 private:
  size_t whole_;
  void* begin_;
};

double fault_us(size_t page, int advice) {
  constexpr size_t kBytes = size_t{128} << 20;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const Mapping mapping(kBytes, advice);
    auto* data = static_cast<volatile char*>(mapping.data());
    least = std::min(least, seconds_of([&] {
                       for (size_t at = 0; at < kBytes; at += kSmallPage) {
                         data[at] = 1;
                       }
                     }));
  }
  return least * 1e6 / static_cast<double>(kBytes / page);
}

double sgemm_gflops() {
  constexpr int64_t kSize = 1536;
  const at::NoGradGuard no_grad;
  const at::Tensor a = at::randn({kSize, kSize});
  const at::Tensor b = at::randn({kSize, kSize});
  return 2e-9 * static_cast<double>(kSize * kSize * kSize) /
         least_seconds(10, [&] { at::mm(a, b); });
}

struct Bandwidth {
  double copy_gbs;
  double triad_gbs;
};

Bandwidth bandwidth() {
  constexpr int64_t kElements = int64_t{64} << 20;
  constexpr size_t kBytes = kElements * sizeof(float);
  const Mapping maps[] = {
      {kBytes, MADV_HUGEPAGE}, {kBytes, MADV_HUGEPAGE}, {kBytes, MADV_HUGEPAGE}};
  at::Tensor a = at::from_blob(maps[0].data(), {kElements});
  const at::Tensor b = at::from_blob(maps[1].data(), {kElements}).fill_(1);
  const at::Tensor c = at::from_blob(maps[2].data(), {kElements}).fill_(2);
  return {2e-9 * kBytes / least_seconds(5, [&] { a.copy_(b); }),
          3e-9 * kBytes / least_seconds(5, [&] { at::add_out(a, b, c, 3); })};
}

}  // namespace

nlohmann::json measure_roofline(int threads) {
  nlohmann::json roofline;
  std::vector<int> counts = {1};
  if (threads > 1) {
    counts.push_back(threads);
  }
  for (int count : counts) {
    at::set_num_threads(count);
    const Bandwidth memory = bandwidth();
    roofline["by_threads"].push_back({{"threads", count},
                                      {"sgemm_gflops", sgemm_gflops()},
                                      {"copy_gbs", memory.copy_gbs},
                                      {"triad_gbs", memory.triad_gbs}});
  }
  at::set_num_threads(threads);
  roofline["page_fault_us"] = fault_us(kSmallPage, MADV_NOHUGEPAGE);
  roofline["huge_page_fault_us"] = fault_us(kHugePage, MADV_HUGEPAGE);
  return roofline;
}

}  // namespace mantissa::bench
