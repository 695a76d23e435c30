#include "mantissa/train/starting_point.h"

#include <ATen/Context.h>

#include "mantissa/base/file.h"
#include "mantissa/checkpoint/reader.h"
#include "mantissa/tensor/generator_state.h"

namespace mantissa::train {
namespace {

checkpoint::Loaded read_checkpoint(const std::filesystem::path& folder) {
  return path_exists(folder / "checkpoints") ? checkpoint::read_latest(folder / "checkpoints")
                                             : checkpoint::read(folder);
}

// With the scaler of `learner` in the place of one of another kind.
tensor::StateDict state_for(const Learner& learner, const tensor::StateDict& saved) {
  const tensor::StateDict scaler = learner.scaler().state_dict();
  if (saved.text("scaler.kind") == scaler.text("kind")) {
    return saved;
  }
  tensor::StateDict state;
  for (const char* part : {"model", "optimizer", "ema"}) {
    state.merge(part, saved.under(part));
  }
  state.set("vocabulary", saved.text("vocabulary"));
  state.merge("scaler", scaler);
  return state;
}

}  // namespace

int64_t begin_at(const std::filesystem::path& checkpoint, const RunConfig& config,
                 const RunData& data, Learner& learner, data::Loader& loader) {
  at::manual_seed(static_cast<uint64_t>(config.train.seed));
  if (checkpoint.empty()) {
    return 0;
  }
  const checkpoint::Loaded loaded = read_checkpoint(checkpoint);
  const tensor::StateDict& state = loaded.checkpoint.state;
  require_genome(data, state.text("genome"), config.data.fasta);
  learner.load_state_dict(state_for(learner, state.under("learner")));
  loader.load_state_dict(state.under("loader"));
  tensor::set_cpu_generator_state(state.tensor("generator.cpu"));
  return loaded.checkpoint.step;
}

}  // namespace mantissa::train
