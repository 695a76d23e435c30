#pragma once

#include <cstdint>

#include "mantissa/base/api.h"
#include "mantissa/genome/alphabet.h"
#include "mantissa/tensor/state_dict.h"

namespace mantissa::data {

/// `both` gives each sample the forward or the reverse strand with equal chance.
enum class Strands : uint8_t { forward, both };

struct SamplerOptions {
  uint64_t seed = 0;
  Strands strands = Strands::forward;
};

struct Sample {
  uint64_t number = 0;  // since the start of training, over all epochs; seeds what is random in it
  uint64_t window = 0;
  genome::Strand strand = genome::Strand::forward;
};

/// An endless sequence of samples: each epoch has every window once, in an order of its own.
/// Sample `number` is a function of the seed and that number, so that the whole state is seed,
/// epoch and position, and threads may compute samples ahead of it.
class MANTISSA_API Sampler {
 public:
  /// Throws InvalidArgument when there is no window.
  Sampler(uint64_t num_windows, const SamplerOptions& options);

  Sample at(uint64_t number) const;

  /// at(epoch() * num_windows + position()), then moves on.
  Sample next();

  void skip(uint64_t num_samples) { next_ += num_samples; }

  uint64_t next_number() const { return next_; }
  uint64_t epoch() const { return next_ / num_windows_; }
  uint64_t position() const { return next_ % num_windows_; }  // within the epoch

  tensor::StateDict state_dict() const;

  /// Goes on where the state was taken, with its seed. Throws Corruption when it is of another
  /// number of windows or other strands: the samples would not be those that were to come.
  void load_state_dict(const tensor::StateDict& state);

 private:
  uint64_t num_windows_;
  SamplerOptions options_;
  uint64_t next_ = 0;
};

}  // namespace mantissa::data
