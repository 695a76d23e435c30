#include "mantissa/train/make_model.h"

#include "mantissa/data/tokenizer.h"
#include "mantissa/models/hyena.h"
#include "mantissa/models/transformer.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::train {
namespace {

// What all kinds have.
template <typename Options>
void set_common(Options& options, const RunConfig& config) {
  options.vocabulary = data::kPaddedVocabulary;
  options.mlp_ratio = config.model.mlp_ratio;
  options.dropout = config.model.dropout;
  options.recompute = models::parse_recompute(config.train.recompute);
  options.direction = config.data.objective == "causal" ? models::Direction::causal
                                                        : models::Direction::bidirectional;
  if (config.model.reverse_complement == "equivariant") {
    options.complement = data::complements();
  }
}

models::TransformerOptions transformer_options(const RunConfig& config) {
  models::TransformerOptions options;
  set_common(options, config);
  options.layers = config.model.layers;
  options.width = config.model.width;
  options.heads = config.model.heads;
  options.rope_base = config.model.rope_base;
  return options;
}

models::HyenaOptions hyena_options(const RunConfig& config) {
  const ModelConfig& model = config.model;
  models::HyenaOptions options;
  if (model.size == "custom") {
    options.layers = model.layers;
    options.width = model.width;
    options.filter.positions = model.positions > 0 ? model.positions : config.data.context;
  } else {
    options = models::hyena_size(model.size);
  }
  set_common(options, config);
  options.order = model.order;
  options.short_taps = model.short_taps;
  options.filter.width = model.filter_width;
  options.filter.layers = model.filter_layers;
  options.filter.bands = model.filter_bands;
  options.filter.frequency = model.filter_frequency;
  options.filter.slow_decay = model.slow_decay;
  options.filter.fast_decay = model.fast_decay;
  options.filter.decay_target = model.decay_target;
  options.filter.decay_shift = model.decay_shift;
  return options;
}

}  // namespace

std::unique_ptr<const models::LanguageModel> make_model(const RunConfig& config) {
  const tensor::memory::CategoryScope weights(tensor::memory::Category::weights);
  const auto seed = static_cast<uint64_t>(config.train.seed);
  if (config.model.kind == "hyena") {
    return std::make_unique<const models::Hyena>(hyena_options(config), seed);
  }
  return std::make_unique<const models::Transformer>(transformer_options(config), seed);
}

int64_t model_positions(const RunConfig& config) { return hyena_options(config).filter.positions; }

}  // namespace mantissa::train
