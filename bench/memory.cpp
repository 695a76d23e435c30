// The caching allocator against LibTorch's.
#include "mantissa/tensor/memory.h"
#include "bench/row.h"
#include "bench/training_step.h"

namespace mantissa::bench {
namespace {

using numerics::Format;
using tensor::memory::Allocator;

Action step_with(Format format, Allocator allocator) {
  return [step = our_step(format), allocator] {
    const Allocator before = tensor::memory::current_allocator();
    tensor::memory::set_allocator(allocator);
    step();
    tensor::memory::set_allocator(before);
  };
}

Figure figure(const std::string& name, Format format) {
  const auto make = [format] {
    return Contest{step_with(format, Allocator::caching), step_with(format, Allocator::system)};
  };
  return {.name = "memory/" + name,
          .meaning = "our step in " + name + " with the caching allocator against the system's",
          .cases = {timed(name, make)},
          .rows = {{"", Summary::worst, {{1.15, 1.4}, {1.15, 1.4}}}}};
}

std::vector<Figure> figures(const Setup&) {
  return {figure("fp32", Format::fp32), figure("bf16", Format::bf16)};
}

const Subject subject("memory", figures);

}  // namespace
}  // namespace mantissa::bench
