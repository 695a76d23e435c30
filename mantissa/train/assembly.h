#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/amp/loss_scaler.h"
#include "mantissa/base/api.h"
#include "mantissa/data/batch.h"
#include "mantissa/data/genome_dataset.h"
#include "mantissa/data/loader.h"
#include "mantissa/genome/genome.h"
#include "mantissa/genome/markov_chain.h"
#include "mantissa/genome/split.h"
#include "mantissa/models/language_model.h"
#include "mantissa/optim/ema.h"
#include "mantissa/optim/optimizer.h"
#include "mantissa/optim/schedule.h"
#include "mantissa/train/run_config.h"
#include "mantissa/train/step.h"

namespace mantissa::train {

/// The data of a run. `validation` and `test` are null when nothing is held out for them.
struct RunData {
  std::shared_ptr<const genome::Genome> genome;
  genome::Split split;
  std::shared_ptr<const data::GenomeDataset> train;
  std::shared_ptr<const data::GenomeDataset> validation;
  std::shared_ptr<const data::GenomeDataset> test;
  std::string fingerprint;  // genome_fingerprint()
};

/// Opens the genome and cuts it into windows. Throws what they throw; a refusal begins with the
/// file and says whether it is of training, validation or test data.
MANTISSA_API RunData open_data(const RunConfig& config);

/// xxh3 of a genome's names, lengths and letters, whatever the case, as 16 digits.
MANTISSA_API std::string genome_fingerprint(const genome::Genome& genome);

/// Throws InvalidArgument when `data` is not of the genome with that fingerprint.
MANTISSA_API void require_genome(const RunData& data, const std::string& fingerprint,
                                 const std::string& fasta);

/// The best Markov model of the training data on `intervals`, bits per base: what a network must
/// beat to have learnt anything. NaN when there are none.
MANTISSA_API double markov_bits_per_base(const RunData& data,
                                         const std::vector<genome::Interval>& intervals);

/// The Markov chain of the training data, of the order that is best on the validation data, or else
/// on the test data. Nothing when neither is held out.
MANTISSA_API std::optional<genome::MarkovChain> best_markov_chain(const RunData& data);

/// From here on tensors get their memory as train.allocator says. Installs the counting allocator
/// (tensor/memory.h) unless the program has: have no tensors in other threads then.
MANTISSA_API void use_allocator(const RunConfig& config);

/// From here on LibTorch computes with train.threads threads; 0: with as many as before.
MANTISSA_API void use_threads(const RunConfig& config);

/// The policy of a run, with its compute format.
MANTISSA_API amp::Policy policy_of(const RunConfig& config);

/// Steps that a dynamic loss scale may skip on its way down: from 2^16 to 2^-8, more than it needs
/// where one fits at all.
inline constexpr int kMostScaleSkips = 24;

/// The trained parts of a run in their first state: parameters, optimizer, scaler.
class MANTISSA_API Learner {
 public:
  explicit Learner(const RunConfig& config);

  /// The parts of a step; valid as long as the learner.
  StepParts parts();
  double lr() const;  // of the next step

  const models::LanguageModel& model() const { return *model_; }
  const optim::Optimizer& optimizer() const { return optimizer_; }
  const std::optional<optim::Ema>& ema() const { return ema_; }
  const amp::LossScaler& scaler() const { return scaler_; }
  int64_t num_parameters() const;

  tensor::StateDict state_dict() const;
  void load_state_dict(const tensor::StateDict& state);

 private:
  numerics::Format compute_;
  amp::Policy policy_;
  double clip_;
  bool explain_skips_;
  double loss_weight_;
  optim::Schedule schedule_;
  std::unique_ptr<const models::LanguageModel> model_;
  amp::ParameterFormats formats_;
  optim::Optimizer optimizer_;
  std::optional<optim::Ema> ema_;  // when optim.ema is not 0
  amp::LossScaler scaler_;
};

/// Throws Error when a step's sequences and those made ahead would not fit into memory.
MANTISSA_API std::unique_ptr<data::Loader> make_loader(const RunConfig& config,
                                                       const RunData& data);

/// The microbatches of the next step.
MANTISSA_API std::vector<data::Batch> next_microbatches(const RunConfig& config,
                                                        data::Loader& loader);

}  // namespace mantissa::train
