#include "mantissa/train/assembly.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include <ATen/Parallel.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/glob.h"
#include "mantissa/base/nearest.h"
#include "mantissa/base/process_memory.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/genome/markov.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/memory.h"
#include "mantissa/train/make_model.h"

namespace mantissa::train {
namespace {

using numerics::Format;
using tensor::memory::Category;
using tensor::memory::CategoryScope;

void require_scopes(const amp::Policy& policy, const models::LanguageModel& model) {
  const std::map<std::string, Format> of_base = amp::find_policy(policy.base).scopes;
  const std::vector<std::string> scopes = model.scopes();
  const auto require = [&](const std::string& glob) {
    const bool matches = std::any_of(scopes.begin(), scopes.end(), [&](const std::string& scope) {
      return amp::covers(glob, scope);
    });
    MANTISSA_CHECK(matches || of_base.contains(glob), InvalidArgument, "policy: scope \"", glob,
                   "\" matches no scope of the model", suggestion(glob, scopes));
  };
  for (const auto& [glob, format] : policy.scopes) {
    require(glob);
  }
  for (const amp::ScopedRule& scoped : amp::scoped_rules(policy)) {
    require(scoped.glob);
  }
}

amp::ParameterFormats make_formats(const amp::Policy& policy, const models::LanguageModel& model) {
  require_scopes(policy, model);
  const CategoryScope weights(Category::weights);
  amp::ParameterFormats formats(policy, model.parameters());
  formats.cast_parameters_();
  tensor::memory::tag_gradients(model.parameters());
  return formats;
}

optim::Optimizer make_optimizer(const RunConfig& config, const models::LanguageModel& model) {
  const CategoryScope state(Category::optimizer);
  optim::OptimizerOptions options;
  options.kind = optim::parse_kind(config.optim.kind);
  options.weight_decay = config.optim.weight_decay;
  options.masters = optim::parse_masters(config.optim.masters);
  options.moments = optim::parse_moment_format(config.optim.moments);
  options.seed = static_cast<uint64_t>(config.train.seed);
  if (options.kind != optim::Kind::sgd) {
    options.beta1 = config.optim.beta1;
    options.beta2 = config.optim.beta2;
    options.eps = config.optim.eps;
  } else {
    options.momentum = config.optim.momentum;
  }
  if (config.model.kind == "hyena") {
    options.no_decay.emplace_back("*.filter.*");  // as HyenaDNA: decay would smooth the filters
  }
  return optim::Optimizer(model.parameters(), options);
}

std::optional<optim::Ema> make_ema(const RunConfig& config, const optim::Optimizer& optimizer) {
  if (config.optim.ema == 0) {
    return std::nullopt;
  }
  const CategoryScope state(Category::optimizer);
  return optim::Ema(optimizer, {.decay = config.optim.ema, .warmup = config.optim.ema_warmup});
}

amp::LossScaler make_scaler(const RunConfig& config) {
  amp::LossScalerOptions options;
  options.kind = amp::parse_scale_kind(config.scale_kind());
  if (options.kind != amp::ScaleKind::none) {
    options.initial = static_cast<float>(config.scale.initial);
  }
  if (options.kind == amp::ScaleKind::dynamic) {
    options.growth = static_cast<float>(config.scale.growth);
    options.backoff = static_cast<float>(config.scale.backoff);
    options.floor = static_cast<float>(config.scale.floor);
    if (config.scale.ceiling > 0) {
      options.ceiling = static_cast<float>(config.scale.ceiling);
    }
    options.growth_interval = static_cast<int32_t>(config.scale.growth_interval);
    options.growth_delay = static_cast<int32_t>(config.scale.growth_delay);
    options.hysteresis = static_cast<int32_t>(config.scale.hysteresis);
    options.regrowth_interval = static_cast<int32_t>(config.scale.regrowth_interval);
  }
  return amp::LossScaler(at::kCPU, options);
}

amp::Policy make_policy(const RunConfig& config) {
  amp::Policy policy = policy_of(config);
  // Refuses what contradicts itself, and registers the policy's operations before other threads
  // run.
  amp::prepare(policy);
  return policy;
}

optim::Schedule make_schedule(const RunConfig& config) {
  optim::Schedule schedule;
  schedule.kind = optim::parse_schedule_kind(config.optim.schedule);
  schedule.lr = config.optim.lr;
  if (schedule.kind != optim::ScheduleKind::constant) {
    schedule.warmup_steps = config.optim.warmup;
  }
  if (schedule.kind == optim::ScheduleKind::cosine) {
    schedule.total_steps = config.train.steps;
    schedule.floor = config.optim.min_lr;
  }
  optim::validate(schedule);
  return schedule;
}

// Says of which file, and of which part of it, a refusal is.
template <typename Call>
auto of_part(const std::string& part, Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat(part, ": ", error.what()));
  }
}

}  // namespace

std::string genome_fingerprint(const genome::Genome& genome) {
  constexpr uint64_t kChunk = 1 << 20;
  Xxh3 hash;
  std::vector<uint8_t> letters(kChunk);
  for (uint32_t contig = 0; contig < genome.contigs().size(); ++contig) {
    const auto& [name, length] = genome.contigs()[contig];
    const std::string header = concat(name, '\n', length, '\n');
    hash.update(header.data(), header.size());
    for (uint64_t begin = 0; begin < length; begin += kChunk) {
      const uint64_t end = std::min(length, begin + kChunk);
      genome.fetch({contig, begin, end}, std::span(letters).first(end - begin));
      hash.update(letters.data(), end - begin);
    }
  }
  return hex(hash.value());
}

void require_genome(const RunData& data, const std::string& fingerprint, const std::string& fasta) {
  MANTISSA_CHECK(data.fingerprint == fingerprint, InvalidArgument, fasta,
                 ": is not the genome of this run (xxh3 ", data.fingerprint,
                 ", the checkpoint has ", fingerprint,
                 "); put the file back that the run began with");
}

RunData open_data(const RunConfig& config) {
  RunData result;
  result.genome = std::make_shared<const genome::Genome>(genome::Genome::open(config.data.fasta));
  result.fingerprint = genome_fingerprint(*result.genome);
  result.split = of_part(config.data.fasta, [&] {
    return genome::split(*result.genome, {config.data.validation, config.data.test});
  });
  data::GenomeDatasetOptions options;
  options.context = config.data.context;
  options.objective = data::parse_objective(config.data.objective);
  if (config.data.stride > 0) {
    options.stride = config.data.stride;
  }
  const auto dataset = [&](const char* part, const std::vector<genome::Interval>& intervals) {
    return of_part(concat(config.data.fasta, ": ", part), [&] {
      return std::make_shared<const data::GenomeDataset>(result.genome, intervals, options);
    });
  };
  result.train = dataset("training data", result.split.train);
  // Held-out data: each base is scored once, whatever the stride of training.
  options.stride.reset();
  options.scoring = data::Scoring::once;
  if (!result.split.validation.empty()) {
    result.validation = dataset("validation data (data.validation)", result.split.validation);
  }
  if (!result.split.test.empty()) {
    result.test = dataset("test data (data.test)", result.split.test);
  }
  return result;
}

std::optional<genome::MarkovChain> best_markov_chain(const RunData& data) {
  const std::vector<genome::Interval>& held_out =
      data.split.validation.empty() ? data.split.test : data.split.validation;
  if (held_out.empty()) {
    return std::nullopt;
  }
  const int order = genome::markov(*data.genome, data.split.train, held_out).best_order();
  return genome::MarkovChain(*data.genome, data.split.train, order);
}

double markov_bits_per_base(const RunData& data, const std::vector<genome::Interval>& intervals) {
  if (intervals.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return genome::markov(*data.genome, data.split.train, intervals).best();
}

void use_allocator(const RunConfig& config) {
  tensor::memory::install_counting_allocator();
  tensor::memory::set_allocator(tensor::memory::parse_allocator(config.train.allocator));
}

void use_threads(const RunConfig& config) {
  if (config.train.threads > 0) {
    at::set_num_threads(static_cast<int>(config.train.threads));
  }
}

amp::Policy policy_of(const RunConfig& config) {
  amp::Policy policy = amp::find_policy(config.precision.policy);
  policy.compute = numerics::parse_format(config.precision.compute);
  return policy;
}

Learner::Learner(const RunConfig& config)
    : compute_(numerics::parse_format(config.precision.compute)),
      policy_(make_policy(config)),
      clip_(config.optim.clip),
      explain_skips_(config.train.explain_skips),
      loss_weight_(config.train.loss_weight),
      schedule_(make_schedule(config)),
      model_(make_model(config)),
      formats_(make_formats(policy_, *model_)),
      optimizer_(make_optimizer(config, *model_)),
      ema_(make_ema(config, optimizer_)),
      scaler_(make_scaler(config)) {}

StepParts Learner::parts() {
  StepParts parts = {*model_, optimizer_,     scaler_,
                     policy_, formats_,       compute_,
                     clip_,   explain_skips_, ema_ ? &*ema_ : nullptr};
  parts.loss_weight = loss_weight_;
  return parts;
}

double Learner::lr() const { return optim::lr_at(schedule_, optimizer_.steps()); }

int64_t Learner::num_parameters() const {
  int64_t count = 0;
  for (const tensor::Parameter& parameter : model_->parameters()) {
    count += parameter.value.numel();
  }
  return count;
}

tensor::StateDict Learner::state_dict() const {
  tensor::StateDict state;
  for (const tensor::Parameter& parameter : model_->parameters()) {
    state.set("model." + parameter.name, parameter.value);
  }
  state.set("vocabulary", data::vocabulary_id());
  state.merge("optimizer", optimizer_.state_dict());
  if (ema_) {
    state.merge("ema", ema_->state_dict());
  }
  state.merge("scaler", scaler_.state_dict());
  return state;
}

void Learner::load_state_dict(const tensor::StateDict& state) {
  const std::string& vocabulary = state.text("vocabulary");
  MANTISSA_CHECK(vocabulary == data::vocabulary_id(), Corruption, "checkpoint: its vocabulary is ",
                 vocabulary, ", this program's is ", data::vocabulary_id(),
                 "; use the version of mantissa that wrote it");
  const tensor::StateDict model = state.under("model");
  for (const tensor::Parameter& parameter : model_->parameters()) {
    model.copy_to(parameter.name, parameter.value);
  }
  MANTISSA_CHECK(model.tensors().size() == model_->parameters().size(), Corruption,
                 "checkpoint: it has ", model.tensors().size(), " parameters, the model has ",
                 model_->parameters().size(), "; resume with the run file that was saved");
  optimizer_.load_state_dict(state.under("optimizer"));
  if (ema_) {
    ema_->load_state_dict(state.under("ema"));
  }
  scaler_.load_state_dict(state.under("scaler"));
}

namespace {

// A step's sequences are in memory at once, and those that are made ahead: tokens and targets.
void require_room_for_batches(const RunConfig& config) {
  const auto memory = process_memory();
  if (!memory) {
    return;
  }
  const double sequences =
      static_cast<double>(config.train.batch) +
      static_cast<double>(config.data.prefetch + 1) * static_cast<double>(config.microbatch());
  const double bytes = sequences * 2 * sizeof(int64_t) * static_cast<double>(config.data.context);
  MANTISSA_CHECK(bytes <= static_cast<double>(memory->usable_bytes()), Error,
                 "train.batch: ", config.train.batch, " sequences of ", config.data.context,
                 " tokens, and ", config.data.prefetch, " microbatches made ahead, take ",
                 std::llround(bytes), " bytes, and the system can give this process ",
                 memory->usable_bytes(),
                 "; use a smaller train.batch, data.prefetch or data.context");
}

}  // namespace

std::unique_ptr<data::Loader> make_loader(const RunConfig& config, const RunData& data) {
  require_room_for_batches(config);
  data::SamplerOptions sampler;
  sampler.seed = static_cast<uint64_t>(config.train.seed);
  sampler.strands = config.data.reverse_complement ? data::Strands::both : data::Strands::forward;
  data::LoaderOptions options;
  options.batch = config.microbatch();
  options.threads = static_cast<int>(config.data.threads);
  options.prefetch = static_cast<int>(config.data.prefetch);
  return std::make_unique<data::Loader>(data.train, sampler, options);
}

std::vector<data::Batch> next_microbatches(const RunConfig& config, data::Loader& loader) {
  std::vector<data::Batch> microbatches;
  for (int64_t rows = 0; rows < config.train.batch; rows += config.microbatch()) {
    microbatches.push_back(loader.next());
  }
  return microbatches;
}

}  // namespace mantissa::train
