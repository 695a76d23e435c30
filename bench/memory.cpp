// Memory of the training step: the caching allocator, what is kept for backward, what of it is
// computed again.
#include "bench/memory.h"

#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "bench/peer_process.h"
#include "bench/row.h"
#include "bench/training_step.h"
#include "mantissa/base/error.h"
#include "mantissa/base/process_memory.h"
#include "mantissa/numerics/format.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::bench {
namespace {

using numerics::Format;
using tensor::memory::Allocator;

// What a user of the allocator alone has: nothing fused, more memory, more of it at a time.
constexpr const char* kPlainLibtorch = "libtorch-fp32";

Step step_of(const std::string& name) {
  return name == kPlainLibtorch ? libtorch_step(Format::fp32)
                                : our_step(numerics::parse_format(name));
}

std::string step_name(const std::string& name) {
  return name == kPlainLibtorch ? "plain LibTorch's FP32 step" : "our step in " + name;
}

Action step_with(const std::string& name, Allocator allocator) {
  return [step = step_of(name), allocator] {
    const Allocator before = tensor::memory::current_allocator();
    tensor::memory::set_allocator(allocator);
    step();
    tensor::memory::set_allocator(before);
  };
}

Figure allocator(const std::string& name) {
  const auto make = [name] {
    return Contest{step_with(name, Allocator::caching), step_with(name, Allocator::system)};
  };
  return {.name = "memory/" + name,
          .meaning = step_name(name) + " with the caching allocator against the system's",
          .cases = {timed(name, make)},
          .rows = {{"", Summary::worst, {{1.15, 1.4}, {1.15, 1.4}}}}};
}

constexpr Bars both(Bar bar) { return {bar, bar}; }

const StepSettings kLean = {.policy = "lean"};

StepSettings lean_with(const std::string& recompute) {
  return {.policy = kLean.policy, .recompute = recompute};
}

// Bytes that BF16 with policy lean keeps for backward, of those that FP32 keeps.
Figure activations(const std::string& recompute, const Bars& bars) {
  const auto count = [recompute] {
    return Bytes{activation_bytes(Format::bf16, lean_with(recompute)),
                 activation_bytes(Format::fp32)};
  };
  const std::string name = recompute == "none" ? "bf16" : "bf16-" + recompute;
  return {.name = "memory/activations/" + name,
          .meaning = "what our BF16 step with policy lean, recompute " + recompute +
                     ", keeps for backward against our FP32 step",
          .cases = {counted(name, count)},
          .rows = {{"", Summary::worst, bars}}};
}

Figure recomputation(const std::string& recompute, const Bars& bars) {
  const auto make = [recompute] {
    const Step again = our_step(Format::bf16, lean_with(recompute));
    const Step keeping = our_step(Format::bf16, kLean);
    return Contest{[=] { again(); }, [=] { keeping(); }};
  };
  return {.name = "memory/recompute/" + recompute,
          .meaning = "our BF16 step with policy lean, recompute " + recompute + ", against none",
          .cases = {timed(recompute, make)},
          .rows = {{"", Summary::worst, bars}}};
}

// In a process of its own, whose memory was never larger.
Figure growth(const std::string& name) {
  const auto count = [name] {
    PeerProcess process({"/proc/self/exe", "--growth", name});
    const std::string answer = process.ask("growth");
    const size_t space = answer.find(' ');
    return Bytes{.ours = std::stod(answer.substr(0, space)),
                 .peer = std::stod(answer.substr(space))};
  };
  return {.name = "memory/growth/" + name,
          .meaning = "growth of the resident memory in " + step_name(name) +
                     ", since before the first tensor, against the peak of the live bytes",
          .cases = {counted(name, count, 5)},
          .rows = {{"", Summary::worst, both({1 / 1.10, 1 / 1.07})}}};
}

std::vector<Figure> figures(const Setup&) {
  return {allocator("fp32"),
          allocator("bf16"),
          allocator(kPlainLibtorch),
          growth("fp32"),
          growth("bf16"),
          growth(kPlainLibtorch),
          activations("none", both({1 / 0.55, 1 / 0.5})),
          activations("elementwise", {}),
          activations("block", both({1 / 0.2, {}})),
          activations("full", {}),
          recomputation("elementwise", {}),
          recomputation("block", both({1 / 1.3, {}})),
          recomputation("full", {})};
}

const Subject subject("memory", figures);

// The most that was ever resident.
int64_t peak_resident_bytes() {
  std::ifstream in("/proc/self/status");
  std::string word;
  int64_t kibibytes = 0;
  while (in >> word) {
    if (word == "VmHWM:" && in >> kibibytes) {
      return kibibytes * 1024;
    }
  }
  throw Error("bench: /proc/self/status has no VmHWM; the system does not tell");
}

}  // namespace

void answer_growth(const std::string& name) {
  const auto memory = process_memory();
  MANTISSA_CHECK(memory, Error, "bench: the system does not tell the memory of a process");
  tensor::memory::reset_peak();
  const Step step = step_of(name);
  for (int i = 0; i < 5; ++i) {
    step();
  }
  std::string question;
  std::getline(std::cin, question);
  std::cout << peak_resident_bytes() - memory->resident_bytes << " "
            << tensor::memory::peak_bytes().total() << std::endl;
}

}  // namespace mantissa::bench
