#include "mantissa/train/plan.h"

#include <algorithm>
#include <array>
#include <string>

#include "mantissa/base/error.h"

namespace mantissa::train {
namespace {

using tensor::memory::Category;
using tensor::memory::kCategories;

constexpr int64_t kBucket = int64_t{25} << 20;  // of DistributedDataParallel
constexpr int64_t kKeptPart = 32;               // of base/arena.h

int64_t shared_out(int64_t bytes, int64_t ranks) { return (bytes + ranks - 1) / ranks; }

// Into how many parts what a category holds is cut; 0: it is not there.
int64_t parts_of(Category category, const Sharding& sharding) {
  switch (category) {
    case Category::weights:
      return sharding.zero >= 3 ? sharding.ranks : 1;
    case Category::gradients:
      return sharding.zero >= 2 ? sharding.ranks : 1;
    case Category::optimizer:
      return sharding.zero >= 1 ? sharding.ranks : 1;
    case Category::casts:
      return sharding.zero >= 3 && sharding.ranks > 1 ? 0 : 1;
    case Category::activations:
    case Category::other:
      return 1;
  }
  MANTISSA_ASSERT(false);
}

using Live = std::array<int64_t, kCategories.size()>;

// What a rank has of it.
Live on_rank(const Live& live, const Sharding& sharding) {
  Live result = {};
  for (const Category category : kCategories) {
    const auto i = static_cast<size_t>(category);
    const int64_t parts = parts_of(category, sharding);
    result[i] = parts == 0 ? 0 : shared_out(live[i], parts);
  }
  return result;
}

int64_t sum(const Live& live) {
  int64_t total = 0;
  for (const int64_t bytes : live) {
    total += bytes;
  }
  return total;
}

// Of the moment of the step when a rank has most.
Live live_at_peak(const Footprint& footprint, const Sharding& sharding) {
  Live live = {};
  Live peak = {};
  for (size_t i = 0; i < footprint.changes.size(); ++i) {
    const tensor::memory::Change& change = footprint.changes[i];
    live[static_cast<size_t>(change.category)] += change.bytes;
    if (i < footprint.step) {
      continue;
    }
    const Live here = on_rank(live, sharding);
    if (sum(here) > sum(peak)) {
      peak = here;
    }
  }
  return peak;
}

}  // namespace

std::vector<std::pair<std::string, int64_t>> RankBytes::by_name() const {
  return {{"weights", weights}, {"masters", masters},         {"moments", moments},
          {"average", average}, {"gradients", gradients},     {"activations", activations},
          {"casts", casts},     {"temporaries", temporaries}, {"data", data},
          {"gathers", gathers}, {"buckets", buckets},         {"fragmentation", fragmentation}};
}

int64_t RankBytes::total() const {
  int64_t result = 0;
  for (const auto& [name, bytes] : by_name()) {
    result += bytes;
  }
  return result;
}

RankBytes rank_bytes(const Footprint& footprint, const Sharding& sharding) {
  MANTISSA_CHECK(sharding.ranks > 0, InvalidArgument, "plan: ranks are ", sharding.ranks,
                 "; pass 1 or more");
  MANTISSA_CHECK(sharding.zero >= 0 && sharding.zero <= 3, InvalidArgument, "plan: zero is ",
                 sharding.zero, "; valid: 0 1 2 3");
  const Live live = live_at_peak(footprint, sharding);
  const auto of = [&](Category category) { return live[static_cast<size_t>(category)]; };
  const int64_t optimizer_parts = parts_of(Category::optimizer, sharding);
  RankBytes bytes;
  bytes.weights = of(Category::weights);
  bytes.masters = shared_out(footprint.masters, optimizer_parts);
  bytes.average = shared_out(footprint.average, optimizer_parts);
  // With the counts of steps.
  bytes.moments = of(Category::optimizer) - bytes.masters - bytes.average;
  bytes.gradients = of(Category::gradients);
  bytes.activations = of(Category::activations);
  bytes.casts = of(Category::casts);
  bytes.temporaries = of(Category::other);
  bytes.data = footprint.data;
  if (sharding.ranks > 1) {
    const int64_t whole = std::min(kBucket, footprint.gradients);
    bytes.buckets = sharding.zero >= 2 ? std::max(whole, footprint.unit_gradients) : whole;
    bytes.gathers = sharding.zero >= 3 ? footprint.unit_weights : 0;
  }
  bytes.fragmentation = bytes.total() / kKeptPart;
  bytes.state = bytes.weights + bytes.masters + bytes.moments + bytes.average +
                shared_out(footprint.gradients, parts_of(Category::gradients, sharding));
  return bytes;
}

StepTime step_time(const Footprint& footprint, const Sharding& sharding, numerics::Format compute,
                   const DeviceSpec& device) {
  StepTime time;
  double fastest = 0;
  for (const auto& [format, figure] : device.flops) {
    fastest = std::max(fastest, figure.value);
  }
  if (!device.flops.contains(compute)) {
    time.missing = concat("no rate of ", to_string(compute), " products");
  }
  for (const auto& [counted, flops] : footprint.flops) {
    // Products of FP32 numbers are those of the run's TF32.
    const bool is_tf32 = counted == numerics::Format::fp32 && compute == numerics::Format::tf32;
    const auto found = device.flops.find(is_tf32 ? compute : counted);
    time.products_s += flops / (found == device.flops.end() ? fastest : found->second.value);
  }
  const int64_t optimizer_parts = parts_of(Category::optimizer, sharding);
  const auto state = static_cast<double>(
      shared_out(footprint.masters + footprint.moments + footprint.average, optimizer_parts));
  const auto weights = static_cast<double>(footprint.weights);
  const double read_by_passes = 2 * weights * static_cast<double>(footprint.passes);
  time.memory_s =
      (2 * footprint.allocated + 2 * (weights + state) + read_by_passes) / device.bandwidth.value;
  return time;
}

double sent_bytes(const Footprint& footprint, const Sharding& sharding) {
  const auto ranks = static_cast<double>(sharding.ranks);
  const double others = (ranks - 1) / ranks;
  const auto gradients = static_cast<double>(footprint.gradients);
  const auto weights = static_cast<double>(footprint.weights);
  const auto passes = static_cast<double>(footprint.passes);
  // Reduced and gathered again; with stage 3 reduced once, and the weights gathered in both passes.
  return sharding.zero < 3 ? 2 * others * gradients : others * (gradients + 2 * passes * weights);
}

}  // namespace mantissa::train
