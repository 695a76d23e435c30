#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"
#include "mantissa/optim/ema.h"
#include "mantissa/tensor/state_dict.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

/// The network of a checkpoint, to be asked and not trained: with the average of its weights when
/// the run keeps one, in the precision of the run or in another.
class MANTISSA_API RunModel {
 public:
  /// `state` is that of the checkpoint, `learner` in it. In another `precision` the run's policy
  /// computes in that format; fp32 is everything in FP32, weights too. Throws what reading the
  /// state throws, and InvalidArgument for a 16-bit precision of a run whose parameters are of
  /// another 16-bit format, or whose policy has everything in FP32.
  RunModel(const RunConfig& config, const tensor::StateDict& state,
           std::optional<numerics::Format> precision = std::nullopt);
  ~RunModel();
  RunModel(const RunModel&) = delete;
  RunModel& operator=(const RunModel&) = delete;

  /// `tokens` (B, T) int64 -> (B, T, V) log p in nats, double; the network's logits are FP32 or
  /// what its policy makes of them, the logarithm of the softmax is taken in double. Of a causal
  /// network p is that of the next token, of a masked one that of the token there.
  at::Tensor log_probabilities(const at::Tensor& tokens) const;

  numerics::Format precision() const { return precision_; }

  /// xxh3 of the names and values of the weights, as they are in this precision.
  uint64_t fingerprint() const;

 private:
  numerics::Format precision_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<optim::EmaGuard> averaged_;
};

}  // namespace mantissa::train
