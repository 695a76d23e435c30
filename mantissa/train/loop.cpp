#include "mantissa/train/loop.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/checkpoint/reader.h"
#include "mantissa/checkpoint/writer.h"
#include "mantissa/monitor/operation_times.h"
#include "mantissa/monitor/time_split.h"
#include "mantissa/record/reader.h"
#include "mantissa/record/tensorboard.h"
#include "mantissa/record/writer.h"
#include "mantissa/tensor/generator_state.h"
#include "mantissa/tensor/memory.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/evaluate.h"
#include "mantissa/train/format_reason.h"
#include "mantissa/train/machine.h"
#include "mantissa/train/microbatch.h"
#include "mantissa/train/progress.h"
#include "mantissa/train/run_folder.h"
#include "mantissa/train/time_split_record.h"

namespace mantissa::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What the record says of the run before this process.
struct History {
  std::string config;                      // that it began with; empty: not even begun
  std::optional<record::Summary> summary;  // when it has ended
  bool has_saved = false;
};

History read_history(const std::filesystem::path& file) {
  History history;
  for (const record::Entry& entry : record::read(file).entries) {
    if (const auto* start = std::get_if<record::RunStart>(&entry.event)) {
      history.config = start->config;
      history.summary.reset();
    } else if (const auto* end = std::get_if<record::RunEnd>(&entry.event)) {
      history.summary = end->summary;
    } else if (std::holds_alternative<record::CheckpointSaved>(entry.event)) {
      history.has_saved = true;
    }
  }
  return history;
}

record::ParameterNumbers numbers_of(const std::vector<optim::NamedGradientStatistics>& gradients) {
  record::ParameterNumbers numbers;
  for (const auto& [parameter, statistics] : gradients) {
    const auto share = [&, count = static_cast<double>(statistics.count)](int64_t part) {
      return count == 0 ? 0 : static_cast<double>(part) / count;
    };
    numbers[parameter] = {{"norm", statistics.norm},
                          {"largest", statistics.largest},
                          {"smallest", statistics.smallest},
                          {"zeros", share(statistics.zeros)},
                          {"non_finite", share(statistics.non_finite)},
                          {"fp32_subnormal", share(statistics.fp32_subnormal)},
                          {"fp16_zero", share(statistics.fp16_zero)},
                          {"fp16_subnormal", share(statistics.fp16_subnormal)},
                          {"fp16_infinite", share(statistics.fp16_infinite)}};
  }
  return numbers;
}

// What tensors took at their highest, in words of a summary.
struct PeakUse {
  std::map<std::string, int64_t> bytes;
  std::map<std::string, int64_t> holders;

  int64_t total() const {
    return std::accumulate(bytes.begin(), bytes.end(), int64_t{0},
                           [](int64_t sum, const auto& part) { return sum + part.second; });
  }
};

// Of this process since the run was begun or resumed in it.
PeakUse peak_use() {
  constexpr size_t kMostHolders = 8;
  const tensor::memory::Peak peak = tensor::memory::peak();
  PeakUse use;
  use.bytes = peak.bytes.by_name();
  for (const tensor::memory::Holder& holder : peak.holders) {
    if (use.holders.size() == kMostHolders) {
      break;
    }
    use.holders[concat(name_of(holder.category), holder.scope.empty() ? "" : " ", holder.scope)] =
        holder.bytes;
  }
  return use;
}

struct StartedRun {
  RunConfig config;
  History history;
};

StartedRun read_run(const std::filesystem::path& folder) {
  const std::filesystem::path record = folder / "record.jsonl";
  StartedRun run;
  run.config = load_run_of(folder);
  if (path_exists(record)) {
    run.history = read_history(record);
    MANTISSA_CHECK(run.history.config.empty() || run.history.config == to_toml(run.config),
                   InvalidArgument, (folder / "run.toml").string(),
                   ": was damaged or changed since the run began; put it back, record.jsonl begins "
                   "with its text, or start a new run with --out");
  }
  return run;
}

/// One run in its folder: the order of its steps, validations and checkpoints.
class Loop {
 public:
  /// Makes the model; touches no folder, so that a refused run leaves none.
  Loop(const RunConfig& config, RunData data, const LoopOptions& options)
      : config_(config),
        options_(options),
        data_(std::move(data)),
        learner_(config),
        loader_(make_loader(config, data_)) {}

  LoopOutcome run(RunFolder folder, const std::string& first_message = "");

 private:
  void seed_generator();
  void restore();
  void open_record();
  void step();
  bool time_split_is_due() const;
  const FormatReasons& format_reasons();
  void validate();
  data::EvaluationOptions evaluation_options() const;
  std::vector<genome::Interval> validated_bases() const;
  void save();
  bool validation_is_due() const;
  bool save_is_due() const;
  bool is_stopped() const { return options_.stop != nullptr && options_.stop->load() != 0; }
  std::map<std::string, double> bytes_per_param() const;
  LoopOutcome conclude(Ending ending);
  void emit(const record::Event& event);
  void note_peak(PeakUse peak);
  void warn_of_lost_updates(const StepReport& report);

  RunConfig config_;
  std::optional<RunFolder> folder_;
  LoopOptions options_;
  RunData data_;
  Learner learner_;
  std::unique_ptr<data::Loader> loader_;
  Progress progress_;
  int64_t saved_step_ = 0;  // of the newest checkpoint
  std::optional<optim::OptimizerBytes> step_bytes_;
  PeakUse peak_;  // of the run
  bool has_warned_of_lost_updates_ = false;
  std::optional<FormatReasons> format_reasons_;  // once the time of an operation was seen
  double markov_bits_ = std::numeric_limits<double>::quiet_NaN();
  std::optional<record::Writer> record_;
  std::optional<record::TensorBoardWriter> tensorboard_;
};

void Loop::emit(const record::Event& event) {
  const record::Entry entry{
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(),
      event};
  record_->append(entry);
  tensorboard_->append(entry);
  if (options_.observe) {
    options_.observe(event);
  }
}

// Once: the rate falls towards the end of a schedule, where every update may be lost.
void Loop::warn_of_lost_updates(const StepReport& report) {
  if (report.lost.empty() || has_warned_of_lost_updates_) {
    return;
  }
  has_warned_of_lost_updates_ = true;
  const optim::LostUpdates& first = report.lost.front();
  emit(record::Message{
      progress_.step, record::Level::warning,
      concat(
          "parameter ", first.parameter, ": ", std::lround(100 * first.share),
          " % of its updates are less than half of a rounding step and lost",
          report.lost.size() > 1 ? concat(", likewise of ", report.lost.size() - 1, " others") : "",
          "; set optim.masters to split, compensated or stochastic")});
}

// Dropout draws from LibTorch's generator, and resumes must match.
void Loop::seed_generator() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(static_cast<uint64_t>(config_.train.seed));
}

void Loop::restore() {
  seed_generator();
  if (!checkpoint::has_checkpoint(folder_->checkpoints())) {
    open_record();
    markov_bits_ = markov_bits_per_base(data_, validated_bases());
    return;
  }
  const checkpoint::Loaded loaded = checkpoint::read_latest(folder_->checkpoints());
  const tensor::StateDict& state = loaded.checkpoint.state;
  require_genome(data_, state.text("genome"), config_.data.fasta);
  learner_.load_state_dict(state.under("learner"));
  loader_->load_state_dict(state.under("loader"));
  progress_.load_state_dict(state.under("progress"));
  markov_bits_ = state.real("markov_bits_per_base");
  if (progress_.best_step == progress_.step) {
    // The process may have died between writing this checkpoint and marking it.
    checkpoint::mark_best(folder_->checkpoints(), progress_.step);
  }
  tensor::set_cpu_generator_state(state.tensor("generator.cpu"));
  saved_step_ = progress_.step;
  open_record();
  const auto warn = [&](const std::string& text) {
    emit(record::Message{progress_.step, record::Level::warning, text});
  };
  for (const std::string& message : loaded.messages) {
    warn(message);
  }
  for (const std::string& difference :
       checkpoint::differences(loaded.checkpoint.environment, environment())) {
    warn(difference);
  }
}

void Loop::open_record() {
  const bool is_new = !path_exists(folder_->record());
  record_ = is_new ? record::Writer::create(folder_->record())
                   : record::Writer::resume(folder_->record(), progress_.step);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  tensorboard_.emplace(folder_->tensorboard(), now);
  int64_t num_steps = 0;
  for (const record::Entry& entry : record_->kept()) {
    tensorboard_->append(entry);
    progress_.note(entry.event);
    num_steps += std::holds_alternative<record::Step>(entry.event) ? 1 : 0;
    if (const auto* saved = std::get_if<record::CheckpointSaved>(&entry.event)) {
      note_peak({saved->peak_bytes, saved->peak_holders});
    }
  }
  emit(record::RunStart{to_toml(config_), environment(), cpu_description(),
                        is_new && progress_.step == 0 ? -1 : progress_.step});
  if (num_steps < progress_.step) {
    emit(record::Message{
        progress_.step, record::Level::warning,
        concat(folder_->record().string(), ": has ", num_steps, " of the ", progress_.step,
               " steps before this checkpoint; lines were cut off or the file "
               "removed, and its curves and step times lack them")});
  }
}

// Is the time of each operation to be seen in the next step?
bool Loop::time_split_is_due() const {
  const int64_t every = config_.train.time_split_every;
  return every > 0 && (progress_.step + 1) % every == 0;
}

const FormatReasons& Loop::format_reasons() {
  if (!format_reasons_) {
    format_reasons_.emplace(policy_of(config_));
  }
  return *format_reasons_;
}

void Loop::step() {
  monitor::TimeSplit split;
  std::optional<monitor::OperationTimes> times;
  if (time_split_is_due()) {
    times.emplace(&split);
  }
  const double waited = loader_->wait_s();
  std::vector<data::Batch> microbatches;
  {
    const monitor::TimeSplit::Scope data(&split, monitor::Phase::data);
    microbatches = next_microbatches(config_, *loader_);
  }
  int64_t num_tokens = 0;
  for (const data::Batch& batch : microbatches) {
    num_tokens += batch.tokens.numel();
  }
  const double lr = learner_.lr();
  StepParts parts = learner_.parts();
  const int64_t every = config_.train.gradient_statistics_every;
  parts.gradient_statistics = every > 0 && (progress_.step + 1) % every == 0;
  parts.times = &split;
  const StepReport report = training_step(parts, microbatches, lr);
  step_bytes_ = report.bytes;
  ++progress_.step;
  const bool skipped = report.outcome == optim::StepOutcome::skipped;
  progress_.count_outcome(skipped);

  record::Step event;
  event.step = progress_.step;
  event.loss = report.loss;
  event.bits_per_base = report.loss / std::numbers::ln2;
  event.lr = lr;
  event.grad_norm = report.grad_norm;
  event.scale = report.scale;
  event.skipped = skipped;
  event.phases = phases_of(split);
  const auto rows = times ? times->finish() : std::vector<monitor::OperationTime>();
  event.step_time_s = total_of(event.phases);
  event.tokens_per_s = static_cast<double>(num_tokens) / event.step_time_s;
  event.data_wait_s = loader_->wait_s() - waited;
  event.peak_bytes = tensor::memory::peak_bytes().total();
  event.gradients = numbers_of(report.gradients);
  progress_.note(event);
  emit(event);
  if (times) {
    emit(with_small_rows_together(
        time_split_event(progress_.step, event.phases, *times, rows, format_reasons())));
  }
  warn_of_lost_updates(report);

  const std::string reason = report.skip ? describe(*report.skip, microbatches, *data_.genome) : "";
  if (!reason.empty()) {
    emit(record::Message{progress_.step, record::Level::info,
                         concat("step ", progress_.step, " skipped: ", reason)});
  }
  MANTISSA_CHECK(progress_.step > 1 || std::isfinite(report.loss), Error, "train: the loss is ",
                 report.loss, " at the first step, in the forward pass", reason.empty() ? "" : ": ",
                 reason,
                 "; mantissa inspect --recommend FILE finds what to keep in FP32, if that cures "
                 "it; else check the data");
  const auto is_of = [&](monitor::SkipCause cause) {
    return report.skip && report.skip->reason.cause == cause;
  };
  // Gradients of a finite loss that overflow at scale 1 may need one below it.
  const char* remedy = is_of(monitor::SkipCause::scale)
                           ? "; lower scale.floor or scale.initial, or use bf16"
                       : is_of(monitor::SkipCause::backward)
                           ? "; lower optim.lr, or scale.initial and scale.floor to below 1, or "
                             "use bf16"
                           : "; lower optim.lr, or use bf16";
  MANTISSA_CHECK(progress_.skipped_in_row < config_.train.max_skips, Error,
                 "train: ", progress_.skipped_in_row, " steps in a row were skipped up to step ",
                 progress_.step, ", loss ", report.loss, ", scale ", report.scale,
                 reason.empty() ? "" : ": ", reason, remedy,
                 saved_step_ > 0 ? "; the last checkpoint is kept" : "");
}

bool Loop::validation_is_due() const {
  const bool at_time =
      progress_.step % config_.train.eval_every == 0 || progress_.step == config_.train.steps;
  return data_.validation != nullptr && progress_.step > 0 && at_time &&
         progress_.validated_step != progress_.step;
}

data::EvaluationOptions Loop::evaluation_options() const {
  return {.batch = config_.microbatch(), .windows = config_.train.eval_windows};
}

// All that is held out, or what the windows of train.eval_windows show of it.
std::vector<genome::Interval> Loop::validated_bases() const {
  if (data_.validation == nullptr || config_.train.eval_windows == 0) {
    return data_.split.validation;
  }
  return data::EvaluationBatches(data_.validation, evaluation_options()).bases();
}

void Loop::validate() {
  const Clock::time_point start = Clock::now();
  const EvaluationResult result =
      evaluate(learner_.parts(), data_.validation, evaluation_options());
  progress_.count_validation(result.bits_per_base);
  emit(record::Evaluation{progress_.step, result.bits_per_base, result.loss, seconds_since(start)});
}

bool Loop::save_is_due() const {
  const int64_t every = config_.train.checkpoint_every > 0 ? config_.train.checkpoint_every
                                                           : config_.train.eval_every;
  return progress_.step > saved_step_ &&
         (progress_.step % every == 0 || progress_.step == config_.train.steps ||
          progress_.best_step == progress_.step);
}

void Loop::save() {
  record_->sync();
  const Clock::time_point start = Clock::now();
  checkpoint::Checkpoint content;
  content.step = progress_.step;
  content.environment = environment();
  content.state.merge("learner", learner_.state_dict());
  content.state.merge("loader", loader_->state_dict());
  content.state.set("genome", data_.fingerprint);
  content.state.set("markov_bits_per_base", markov_bits_);
  content.state.merge("progress", progress_.state_dict());
  content.state.set("generator.cpu", tensor::cpu_generator_state());
  checkpoint::WriteOptions options;
  options.keep_last = config_.train.keep;
  const checkpoint::Saved saved = checkpoint::write(folder_->checkpoints(), content, options);
  if (progress_.best_step == progress_.step) {
    checkpoint::mark_best(folder_->checkpoints(), progress_.step);
  }
  saved_step_ = progress_.step;
  note_peak(peak_use());
  emit(record::CheckpointSaved{progress_.step, saved.folder.filename().string(), saved.size_bytes,
                               seconds_since(start), peak_.bytes, peak_.holders});
  for (const std::string& message : saved.messages) {
    emit(record::Message{progress_.step, record::Level::warning, message});
  }
}

// Of the last step of this process; empty when it has done none.
std::map<std::string, double> Loop::bytes_per_param() const {
  if (!step_bytes_) {
    return {};
  }
  const auto each = [&](int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(learner_.num_parameters());
  };
  std::map<std::string, double> result = {
      {"weights", each(step_bytes_->weights)},
      {"gradients", each(step_bytes_->gradients + step_bytes_->accumulators)},
      {"masters", each(step_bytes_->masters)},
      {"moments", each(step_bytes_->moments)}};
  if (learner_.ema()) {
    result["ema"] = each(learner_.ema()->bytes());
  }
  return result;
}

// The higher of both is that of the run; of one that was resumed the record tells of the rest.
void Loop::note_peak(PeakUse peak) {
  if (peak.total() > peak_.total()) {
    peak_ = std::move(peak);
  }
}

LoopOutcome Loop::conclude(Ending ending) {
  LoopOutcome outcome;
  outcome.ending = ending;
  record::Summary& summary = outcome.summary;
  summary.steps = progress_.step;
  summary.bits_per_base = progress_.validation_bits;
  summary.loss = progress_.loss;
  summary.markov_bits_per_base = markov_bits_;
  summary.step_time_s = progress_.median_step_time_s();
  summary.tokens_per_s =
      static_cast<double>(config_.train.batch * config_.data.context) / summary.step_time_s;
  const PeakUse peak = peak_use();
  outcome.peak_bytes = peak.bytes;
  outcome.peak_holders = peak.holders;
  note_peak(peak);
  summary.peak_bytes = peak_.bytes;
  summary.peak_holders = peak_.holders;
  summary.bytes_per_param = bytes_per_param();
  summary.scale = learner_.scaler().value().item<double>();
  summary.skipped_steps = progress_.skipped;
  summary.params = learner_.num_parameters();
  summary.seed = config_.train.seed;
  summary.precision = config_.precision.compute;
  summary.policy = config_.precision.policy;
  summary.allocator = config_.train.allocator;
  summary.stopped_by = ending == Ending::finished   ? "steps"
                       : ending == Ending::patience ? "patience"
                                                    : "signal";
  if (ending != Ending::interrupted) {
    emit(record::RunEnd{summary});
    replace_file(folder_->summary(), record::to_json(summary) + "\n");
  }
  record_->sync();
  return outcome;
}

LoopOutcome Loop::run(RunFolder folder, const std::string& first_message) {
  folder_.emplace(std::move(folder));
  use_threads(config_);
  restore();
  tensor::memory::reset_peak();  // a checkpoint was there twice for a moment
  if (!first_message.empty()) {
    emit(record::Message{progress_.step, record::Level::info, first_message});
  }
  for (;;) {
    if (validation_is_due() && !is_stopped()) {
      validate();
    }
    if (save_is_due()) {
      save();
    }
    if (progress_.step >= config_.train.steps && !validation_is_due()) {
      return conclude(Ending::finished);
    }
    if (config_.train.patience > 0 && progress_.validations_since_best >= config_.train.patience) {
      return conclude(Ending::patience);
    }
    if (is_stopped()) {
      if (saved_step_ < progress_.step) {
        save();
      }
      return conclude(Ending::interrupted);
    }
    step();
  }
}

}  // namespace

LoopOutcome start_run(const RunConfig& given, const std::filesystem::path& folder,
                      const LoopOptions& options) {
  RunFolder::require_free(folder);
  use_allocator(given);
  RunData data = open_data(given);
  std::string about_microbatch;
  const RunConfig config = with_microbatch(given, data, &about_microbatch);
  Loop loop(config, std::move(data), options);
  RunFolder run_folder = RunFolder::create(folder);
  replace_file(run_folder.config(), to_toml(config));
  return loop.run(std::move(run_folder), about_microbatch);
}

LoopOutcome resume_run(const std::filesystem::path& folder, const LoopOptions& options) {
  RunFolder run_folder = RunFolder::open(folder);
  const auto [config, history] = read_run(folder);
  if (history.summary) {
    return {history.summary->stopped_by == "patience" ? Ending::patience : Ending::finished,
            *history.summary};
  }
  MANTISSA_CHECK(!history.has_saved || checkpoint::has_checkpoint(run_folder.checkpoints()),
                 Corruption, folder.string(),
                 ": the record tells of checkpoints, but there are none; put them back, or start "
                 "a new run with --out");
  use_allocator(config);
  return Loop(config, open_data(config), options).run(std::move(run_folder));
}

RunConfig load_run(const std::filesystem::path& folder) {
  RunFolder::require_run(folder);
  return read_run(folder).config;
}

}  // namespace mantissa::train
