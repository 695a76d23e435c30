#include "mantissa/data/loader.h"

#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::data {
namespace {

uint64_t size_of(const std::shared_ptr<const Dataset>& dataset) {
  MANTISSA_CHECK(dataset != nullptr, InvalidArgument, "loader: no dataset; make one first");
  return dataset->size();
}

void require_valid(const LoaderOptions& options) {
  MANTISSA_CHECK(options.batch > 0, InvalidArgument, "loader: batch ", options.batch,
                 "; valid: 1 or more windows");
  MANTISSA_CHECK(options.threads > 0, InvalidArgument, "loader: threads ", options.threads,
                 "; valid: 1 or more");
  MANTISSA_CHECK(options.prefetch > 0, InvalidArgument, "loader: prefetch ", options.prefetch,
                 "; valid: 1 or more batches");
}

}  // namespace

Loader::Loader(std::shared_ptr<const Dataset> dataset, const SamplerOptions& sampler,
               const LoaderOptions& options)
    : dataset_(std::move(dataset)),
      options_(options),
      sampler_(size_of(dataset_), sampler),
      plan_(sampler_) {
  require_valid(options);
  start();
}

Loader::~Loader() { stop(); }

void Loader::start() {
  plan_ = sampler_;
  handed_out_ = sampler_.next_number();
  next_to_make_ = handed_out_;
  stopping_ = false;
  try {
    for (int i = 0; i < options_.threads; ++i) {
      threads_.emplace_back([this] { work(); });
    }
  } catch (...) {
    stop();
    throw;
  }
}

void Loader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  threads_.clear();
  ready_.clear();
}

void Loader::work() {
  const auto batch = static_cast<uint64_t>(options_.batch);
  const uint64_t ahead = batch * static_cast<uint64_t>(options_.prefetch);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || next_to_make_ < handed_out_ + ahead; });
    if (stopping_) {
      return;
    }
    const uint64_t first_sample = std::exchange(next_to_make_, next_to_make_ + batch);
    lock.unlock();
    Slot slot = make(first_sample);
    lock.lock();
    ready_.emplace(first_sample, std::move(slot));
    changed_.notify_all();
  }
}

Loader::Slot Loader::make(uint64_t first_sample) const {
  Slot slot;
  try {
    std::vector<Sample> samples;
    for (int64_t row = 0; row < options_.batch; ++row) {
      samples.push_back(plan_.at(first_sample + static_cast<uint64_t>(row)));
    }
    slot.buffer = fill_buffer(*dataset_, samples);
  } catch (...) {
    slot.error = std::current_exception();
  }
  return slot;
}

Batch Loader::next() {
  const auto batch = static_cast<uint64_t>(options_.batch);
  const uint64_t first_sample = sampler_.next_number();
  BatchBuffer buffer;
  {
    std::unique_lock lock(mutex_);
    if (!ready_.contains(first_sample)) {
      const auto start = std::chrono::steady_clock::now();
      changed_.wait(lock, [&] { return ready_.contains(first_sample); });
      waited_ += std::chrono::steady_clock::now() - start;
    }
    Slot& slot = ready_.at(first_sample);
    if (slot.error) {
      std::rethrow_exception(slot.error);
    }
    buffer = std::move(slot.buffer);
    ready_.erase(first_sample);
    handed_out_ = first_sample + batch;
  }
  changed_.notify_all();
  sampler_.skip(batch);
  return make_batch(std::move(buffer), first_sample / batch);
}

void Loader::load_state_dict(const tensor::StateDict& state) {
  Sampler loaded = sampler_;
  loaded.load_state_dict(state);
  stop();
  sampler_ = loaded;
  start();
}

}  // namespace mantissa::data
