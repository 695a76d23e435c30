#include "mantissa/data/evaluation.h"

#include <algorithm>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::data {
EvaluationBatches::EvaluationBatches(std::shared_ptr<const Dataset> dataset,
                                     const EvaluationOptions& options)
    : dataset_(std::move(dataset)), num_rows_(static_cast<uint64_t>(options.batch)) {
  MANTISSA_CHECK(dataset_ != nullptr, InvalidArgument, "evaluation: no dataset; make one first");
  MANTISSA_CHECK(options.batch > 0, InvalidArgument, "evaluation: batch ", options.batch,
                 "; valid: 1 or more windows");
  MANTISSA_CHECK(options.windows >= 0, InvalidArgument, "evaluation: windows ", options.windows,
                 "; valid: 0 (all) or more");
  num_windows_ = options.windows > 0
                     ? std::min(dataset_->size(), static_cast<uint64_t>(options.windows))
                     : dataset_->size();
}

std::vector<Sample> EvaluationBatches::samples_of(uint64_t index) const {
  MANTISSA_CHECK(index < size(), InvalidArgument, "evaluation: batch ", index, " of ", size(),
                 "; valid: 0 to ", size() - 1);
  const uint64_t begin = index * num_rows_;
  const uint64_t end = std::min(begin + num_rows_, num_windows_);
  std::vector<Sample> samples;
  samples.reserve(end - begin);
  for (uint64_t i = begin; i < end; ++i) {
    const uint64_t window = i * dataset_->size() / num_windows_;
    samples.push_back({window, window, genome::Strand::forward});
  }
  return samples;
}

Batch EvaluationBatches::batch(uint64_t index) const {
  return make_batch(fill_buffer(*dataset_, samples_of(index)), index);
}

std::vector<genome::Interval> EvaluationBatches::bases() const {
  std::vector<genome::Interval> windows;
  for (uint64_t i = 0; i < size(); ++i) {
    for (const Position& position : fill_buffer(*dataset_, samples_of(i)).positions) {
      windows.push_back(position.bases);
    }
  }
  return genome::merge(std::move(windows));
}

}  // namespace mantissa::data
