#include "mantissa/train/footprint.h"

#include <algorithm>
#include <string>

#include <ATen/ops/empty.h>

#include "mantissa/data/tokenizer.h"
#include "mantissa/tensor/generator_state.h"
#include "mantissa/tensor/shapes_only.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/step.h"

namespace mantissa::train {
namespace {

namespace memory = tensor::memory;
using memory::Category;

// Letters in turn: of DNA each comes often, and what a step takes depends on that a little
// (ops/embedding.cpp).
data::Batch any_batch(int64_t rows, int64_t length) {
  constexpr int64_t kBases = 4;
  data::Batch batch;
  batch.tokens = at::empty({rows, length}, at::kLong);
  batch.targets = at::empty({rows, length}, at::kLong);
  auto* const tokens = batch.tokens.mutable_data_ptr<int64_t>();
  auto* const targets = batch.targets.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < rows * length; ++i) {
    tokens[i] = data::kA + i % kBases;
    targets[i] = data::kA + (i + 1) % kBases;
  }
  return batch;
}

struct Units {
  std::map<std::string, int64_t> weights;  // bytes by block
  std::map<std::string, int64_t> gradients;
};

int64_t largest(const std::map<std::string, int64_t>& bytes) {
  int64_t result = 0;
  for (const auto& [name, size] : bytes) {
    result = std::max(result, size);
  }
  return result;
}

// blocks.3 of blocks.3.mlp.up.weight; nothing of what is in no block.
std::string unit_of(const std::string& parameter) {
  const size_t end = parameter.find('.', parameter.find('.') + 1);
  return parameter.starts_with("blocks.") ? parameter.substr(0, end) : "";
}

void note_units(const Learner& learner, bool has_casts, Footprint& result) {
  Units units;
  for (const tensor::Parameter& parameter : learner.model().parameters()) {
    const std::string unit = unit_of(parameter.name);
    const int64_t numbers = parameter.value.numel();
    const auto size = static_cast<int64_t>(parameter.value.element_size());
    units.weights[unit] += numbers * (has_casts ? 2 : size);
    units.gradients[unit] += numbers * size;
  }
  result.unit_weights = largest(units.weights);
  result.unit_gradients = largest(units.gradients);
}

class RestoreGenerator {
 public:
  RestoreGenerator() = default;
  ~RestoreGenerator() { tensor::set_cpu_generator_state(state_); }
  RestoreGenerator(const RestoreGenerator&) = delete;
  RestoreGenerator& operator=(const RestoreGenerator&) = delete;

 private:
  at::Tensor state_ = tensor::cpu_generator_state();
};

}  // namespace

Footprint footprint(const RunConfig& config) {
  memory::install_counting_allocator();
  const RestoreGenerator afterwards;
  const tensor::ShapesOnly shapes_only;
  Footprint result;
  result.passes = config.train.batch / config.microbatch();
  const int64_t passes = std::min<int64_t>(2, result.passes);
  std::vector<data::Batch> batches;
  for (int64_t i = 0; i < passes; ++i) {
    batches.push_back(any_batch(config.microbatch(), config.data.context));
  }
  result.data =
      config.train.batch * config.data.context * 2 * static_cast<int64_t>(sizeof(int64_t));
  const memory::Journal journal;
  Learner learner(config);
  result.step = journal.changes().size();
  const StepReport report = training_step(learner.parts(), batches, learner.lr());
  result.changes = journal.changes();

  result.parameters = learner.num_parameters();
  result.weights = report.bytes.weights;
  result.masters = report.bytes.masters;
  result.moments = report.bytes.moments;
  result.gradients = report.bytes.gradients + report.bytes.accumulators;
  result.average = learner.ema() ? learner.ema()->bytes() : 0;
  const double share = static_cast<double>(result.passes) / static_cast<double>(passes);
  result.flops = shapes_only.flops();
  for (auto& [format, flops] : result.flops) {
    flops *= share;
  }
  bool has_casts = false;
  for (size_t i = result.step; i < result.changes.size(); ++i) {
    const memory::Change& change = result.changes[i];
    result.allocated += static_cast<double>(std::max<int64_t>(0, change.bytes)) * share;
    has_casts = has_casts || change.category == Category::casts;
  }
  note_units(learner, has_casts, result);
  return result;
}

}  // namespace mantissa::train
