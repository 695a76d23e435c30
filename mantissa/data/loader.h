#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/data/batch.h"
#include "mantissa/data/dataset.h"
#include "mantissa/data/sampler.h"
#include "mantissa/tensor/state_dict.h"

namespace mantissa::data {

struct LoaderOptions {
  int64_t batch = 32;  // windows
  int threads = 1;
  int prefetch = 4;  // batches that may be ready or in work beyond the one handed out
};

/// Batches for training without end, made ahead by threads. Which batches come, and in what order,
/// depends on dataset, sampler and batch size only; a batch may end one epoch and begin the next.
///
///     Loader loader(dataset, {.seed = 1, .strands = Strands::both}, {.batch = 32});
///     for (int64_t step = 0; step < steps; ++step) {
///       Batch batch = loader.next();
///       ...
///     }
///     state.merge("loader", loader.state_dict());
///
/// Its member functions are for one thread.
class MANTISSA_API Loader {
 public:
  /// Throws InvalidArgument when an option is below 1.
  Loader(std::shared_ptr<const Dataset> dataset, const SamplerOptions& sampler,
         const LoaderOptions& options);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  /// Waits for the batches in work, which are then dropped.
  ~Loader();

  /// The next batch. What a thread threw while making it is thrown here, again on each call.
  Batch next();

  /// Seconds that next() has waited for threads since construction.
  double wait_s() const { return std::chrono::duration<double>(waited_).count(); }

  uint64_t epoch() const { return sampler_.epoch(); }

  /// The position of the batch that next() would give: what is made ahead does not count.
  tensor::StateDict state_dict() const { return sampler_.state_dict(); }

  /// Goes on from a state, dropping what was made ahead. When it throws, the loader is unchanged.
  void load_state_dict(const tensor::StateDict& state);

 private:
  struct Slot {
    BatchBuffer buffer;
    std::exception_ptr error;
  };

  void start();
  void stop();
  void work();
  Slot make(uint64_t first_sample) const;

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  Sampler sampler_;  // at the batch to hand out
  Sampler plan_;     // what threads read; constant while they run
  std::chrono::steady_clock::duration waited_{};

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<uint64_t, Slot> ready_;  // by the number of the first sample
  uint64_t handed_out_ = 0;         // number of the first sample of the batch to hand out
  uint64_t next_to_make_ = 0;       // likewise
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // for the owner's thread only
};

}  // namespace mantissa::data
