#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/base/step_outcome.h"
#include "mantissa/ops/gradient_statistics.h"
#include "mantissa/ops/sgd.h"
#include "mantissa/optim/learning_rate.h"
#include "mantissa/optim/pending_outcome.h"
#include "mantissa/tensor/parameter_list.h"
#include "mantissa/tensor/state_dict.h"

namespace mantissa::ops {
struct GradientPass;
struct GradientUse;
}  // namespace mantissa::ops

namespace mantissa::optim {

using mantissa::StepOutcome;
using ops::GradientStatistics;
using ops::MomentFormat;
using ops::Momentum;
using ops::WeightDecay;

/// adamw takes lr * weight_decay * w off the weight, apart from the gradient; adam adds
/// weight_decay * w to the gradient (an L2 penalty), which its moments then scale.
enum class Kind : uint8_t { adamw, adam, sgd };

MANTISSA_API std::string_view to_string(Kind kind);

/// Throws InvalidArgument with the nearest valid name.
MANTISSA_API Kind parse_kind(std::string_view name);

/// How the FP32 value of a 16-bit parameter is kept from step to step; see ops::WeightUpdate.
/// Bytes a parameter with 16-bit gradients, in all: 16, 14, 14, 12, 12 with FP32 moments, 12, 10,
/// 10, 8, 8 with BF16 ones, 10, 8, 8, 6, 6 with blockwise8 (docs/guides/optimizers.md).
enum class Masters : uint8_t {
  fp32,   // whole, beside the parameter
  split,  // the 16 bits that a BF16 parameter lacks: what `fp32` does, bit for bit but for the
          // rounding of ties
  compensated,  // what the parameter lacks, rounded to its format: Kahan's compensation
  stochastic,   // nowhere: each step rounds up or down by chance, right in the mean
  none,         // nowhere: each step rounds to nearest, and small updates are lost
};

MANTISSA_API std::string_view to_string(Masters masters);

/// Throws InvalidArgument with the nearest valid name.
MANTISSA_API Masters parse_masters(std::string_view name);

/// Throws InvalidArgument with the nearest valid name.
MANTISSA_API MomentFormat parse_moment_format(std::string_view name);

/// Settings of the parameters whose names match any of the globs of `names`.
struct GroupOptions {
  std::vector<std::string> names;
  double lr_scale = 1;                      // of StepOptions::lr
  std::optional<double> weight_decay = {};  // in place of OptimizerOptions'; goes before no_decay
};

/// Globs of what is customarily not decayed.
inline const std::vector<std::string> kNormsAndBiases = {"*norm*", "*bias"};

struct OptimizerOptions {
  Kind kind = Kind::adamw;
  double beta1 = 0.9;    // adamw, adam
  double beta2 = 0.999;  // adamw, adam
  double eps = 1e-8;     // adamw, adam; outside of the root
  double weight_decay = 0.1;
  double momentum = 0.9;                       // sgd; 0: none
  WeightDecay decay = WeightDecay::decoupled;  // of sgd; adamw and adam name theirs
  Momentum momentum_kind = Momentum::classic;  // nesterov: sgd only
  Masters masters = Masters::fp32;             // of 16-bit parameters; an FP32 one is its own
  MomentFormat moments = MomentFormat::fp32;   // see ops::Moment
  uint64_t seed = 0;                           // of stochastic rounding, of weights and moments
  bool fused = true;  // by kernels of ours, on the CPU and on CUDA; false: ATen operations, as on
                      // every other device
  std::vector<std::string> no_decay = kNormsAndBiases;
  std::vector<GroupOptions> groups = {};
};

struct NamedGradientStatistics {
  std::string parameter;
  GradientStatistics statistics;
};

/// 0-d FP32 tensors: see ops::GradientPass.
struct GradientReport {
  at::Tensor found_inf;
  at::Tensor norm;                                       // of the unscaled gradients
  std::vector<NamedGradientStatistics> parameters = {};  // with GradientDetail::parameters
};

enum class GradientDetail : uint8_t {
  total,
  parameters,  // statistics of each parameter that has a gradient, in the same reading
};

/// 0-d FP32 tensors on the device of the parameters; undefined ones mean scale 1, no clipping,
/// nothing found.
struct StepOptions {
  LearningRate lr = {};
  at::Tensor scale = {};        // of the loss whose gradients these are
  at::Tensor clip_factor = {};  // of the unscaled gradients
  at::Tensor found_inf = {};    // not 0: skip
  OutcomeTransfer outcome = OutcomeTransfer::behind_step;
};

struct OptimizerBytes {
  int64_t weights = 0;  // the parameters
  int64_t masters = 0;  // what is kept of 16-bit parameters beside them
  int64_t moments = 0;
  int64_t gradients = 0;     // those in .grad at this moment
  int64_t accumulators = 0;  // FP32 sums over microbatches at this moment
};

/// Where the FP32 value of a parameter is: a weight without a gradient.
struct MasterWeight {
  std::string name;
  at::Tensor parameter;
  ops::WeightUpdate weight;
};

/// Updates of a step that rounding has undone: see OptimizerOptions::masters.
struct LostUpdates {
  std::string parameter;
  double share = 0;  // of its elements with an update that is not zero, and less than half of the
                     // rounding step of the weight
};

struct ParameterSlot;
class OptimizerInBackward;

/// Updates parameters in FP32. A BF16 or FP16 parameter gets, by default, an FP32 master, first an
/// exact copy, of which the parameter is the rounding (to nearest even) after each step; an FP32
/// parameter is its own master. Gradients are read in the format that backward left them in.
///
/// Masters are made with the Optimizer. What is written into a 16-bit parameter afterwards, such as
/// a pretrained model, is lost at the next step: load weights first, then make the optimizer, or
/// load its state too.
///
///     model.loss(batch).mul(scale).backward();
///     const GradientReport report = optimizer.read_gradients(scale);
///     const StepOutcome outcome =
///         optimizer.step({.lr = lr_at(schedule, optimizer.steps()), .scale = scale,
///                         .clip_factor = clip_factor(report.norm, 1.0), .found_inf =
///                         report.found_inf});
///     optimizer.zero_grad();
///
/// With several microbatches call `accumulate_` after each backward: 16-bit gradients are then
/// summed in FP32. Of one thread. Parameters may be on any device, all on the same.
///
/// On the CPU a step is one fused pass. Elsewhere a step waits for nothing: weights, moments and
/// counts are selected on the device by found_inf, and so can be all that follows a step. On CUDA
/// it is one pass too, with all Masters and FP32 or BF16 moments (ops::adamw_enqueued_). On other
/// devices, and with `fused = false`, it is a composition of ATen operations, which rounds where
/// the fused pass does (ops::adamw_composed_), and knows Masters fp32, split, compensated and none
/// with FP32 moments. A loop then reads what a step did when the next one is enqueued, one step
/// late:
///
///     PendingOutcome last;
///     for (...) {
///       buffers.remember();  // tensor::Rollback
///       scaler.scale(loss).backward();
///       const GradientReport report = optimizer.read_gradients(scaler.value());
///       const PendingOutcome outcome = optimizer.enqueue_step(
///           {.lr = lr_at(schedule, optimizer.applied_steps()), .scale = scaler.value(),
///            .clip_factor = clip_factor(report.norm, 1.0), .found_inf = report.found_inf});
///       scaler.update(report.found_inf);
///       ema.update(optimizer, outcome);
///       buffers.undo_if(report.found_inf);
///       optimizer.zero_grad();
///       if (last.read() == StepOutcome::skipped) { ... }  // the step before
///       last = outcome;
///     }
///
/// Gradients are never written, so two optimizers over one FP32 parameter read the same ones; of a
/// 16-bit parameter each keeps a master of its own, and the last step decides. Sparse gradients are
/// made dense, duplicates added in FP32 and the sum rounded to their own dtype, or not rounded by
/// `accumulate_`: every element is updated, as moments and decay demand.
class MANTISSA_API Optimizer {
 public:
  /// Names, dtypes, devices and options are checked. Parameters are leaves and do not overlap;
  /// those that require no gradient stay as they are, and one must. InvalidArgument for a parameter
  /// in two groups, for a glob (of a group, or a no_decay that is not the default) that matches no
  /// parameter, and for an FP16 parameter with Masters::split. Unsupported for settings that only
  /// fused passes know.
  Optimizer(const tensor::ParameterList& parameters, const OptimizerOptions& options);
  explicit Optimizer(const tensor::ParameterList& parameters);
  ~Optimizer();

  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(Optimizer&&) noexcept;

  /// Adds .grad of 16-bit parameters to FP32 buffers and undefines it; FP32 parameters go on adding
  /// up in .grad. The buffers live until `step` or `zero_grad`.
  void accumulate_();

  /// For losses that have a scale each, after the backward of one of them: adds its gradients,
  /// unscaled, to FP32 buffers, those of FP32 parameters too, and undefines .grad. The report is
  /// that of these gradients alone; its found_inf is for the scaler of this loss. The sums have no
  /// scale: `read_gradients` and `step` then take none.
  [[nodiscard]] GradientReport accumulate_(const at::Tensor& scale);

  /// Reads all gradients once and changes none. The step that follows must have the same scale, and
  /// the found_inf of the report where there is one. Statistics of parameters are values of the
  /// host: it waits for the device.
  [[nodiscard]] GradientReport read_gradients(const at::Tensor& scale = {},
                                              GradientDetail detail = GradientDetail::total);

  /// One update of every parameter that has a gradient. Leaves .grad. Waits for the device.
  /// InvalidArgument when lr is not set, and when the scale is not that of `read_gradients`:
  /// another one, none, or one that was updated in between.
  StepOutcome step(const StepOptions& options);

  /// The same, and waits for nothing. Fused passes are done when it returns; a step without any
  /// gradient is known to be one at once.
  [[nodiscard]] PendingOutcome enqueue_step(const StepOptions& options);

  /// Undefines .grad of all parameters and frees the buffers.
  void zero_grad();

  /// How many steps were applied: what a schedule counts. Waits for the device.
  int64_t steps() const;

  /// The same, 0-d int64 on the device of the parameters, which steps write into. Waits for
  /// nothing.
  const at::Tensor& applied_steps() const { return steps_; }

  /// Masters, moments, step counts and the kind, the same ones for fused and other steps. Tensors
  /// are shared, not copied. Waits for the device. InvalidArgument between `accumulate_` and
  /// `step`.
  tensor::StateDict state_dict() const;

  /// Takes a state back bit for bit and rounds the masters into the parameters. A state of another
  /// kind, with missing or additional names, or of other shapes or dtypes is refused with
  /// Corruption, and then nothing has changed.
  void load_state_dict(const tensor::StateDict& state);

  /// FP32: the master or the parameter itself, or a copy of what is kept elsewise. InvalidArgument
  /// for an unknown name.
  at::Tensor master(const std::string& name) const;

  /// In the order of the parameters; valid until the next call that changes the optimizer.
  std::vector<MasterWeight> master_weights() const;

  /// With Masters::none, of the last step that was applied: the parameters of which it has lost
  /// more than `share` of the elements. Empty otherwise. Waits for the device.
  std::vector<LostUpdates> lost_updates(double share = 0.5) const;

  OptimizerBytes bytes() const;

  const OptimizerOptions& options() const { return options_; }

  /// Of all parameters.
  at::Device device() const { return device_; }

  /// Whether steps are fused passes on the CPU, known on the host when they return.
  bool is_fused() const { return fused_; }

 private:
  friend class OptimizerInBackward;

  // What read_gradients was given, until `step` or `zero_grad`.
  struct Reading {
    at::Tensor scale;
    int64_t version;
  };

  void require_whole() const;  // throws InvalidArgument when it was moved from
  void check_scale(const at::Tensor& scale) const;
  void require_scale_of_reading(const StepOptions& options) const;
  ops::GradientPass read(at::TensorList gradients, const at::Tensor& scale,
                         std::vector<GradientStatistics>* statistics = nullptr) const;
  PendingOutcome update(const std::vector<const ParameterSlot*>& slots, const StepOptions& options);
  PendingOutcome update_fused(const std::vector<const ParameterSlot*>& slots,
                              const LearningRate& lr, const ops::GradientUse& use);
  double rate_of(const LearningRate& lr) const;  // waits for the device
  bool apply_fused(const std::vector<const ParameterSlot*>& slots, double lr, int64_t number,
                   const ops::GradientUse& use);  // step number `number`, without counting it
  PendingOutcome update_enqueued(const std::vector<const ParameterSlot*>& slots,
                                 const StepOptions& options, ops::GradientUse use);

  OptimizerOptions options_;
  std::vector<ParameterSlot> slots_;
  at::Device device_ = at::kCPU;
  bool fused_ = true;
  bool by_kernels_ = false;  // of another device
  at::Tensor steps_;         // 0-d int64
  std::optional<Reading> reading_;
  bool sums_unscaled_ = false;  // by accumulate_(scale), until `step` or `zero_grad`
};

}  // namespace mantissa::optim
