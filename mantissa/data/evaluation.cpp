#include "mantissa/data/evaluation.h"

#include <algorithm>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::data {

EvaluationBatches::EvaluationBatches(std::shared_ptr<const Dataset> dataset, int64_t batch)
    : dataset_(std::move(dataset)), num_rows_(static_cast<uint64_t>(batch)) {
  MANTISSA_CHECK(dataset_ != nullptr, InvalidArgument, "evaluation: no dataset; make one first");
  MANTISSA_CHECK(batch > 0, InvalidArgument, "evaluation: batch ", batch,
                 "; valid: 1 or more windows");
}

uint64_t EvaluationBatches::size() const { return (dataset_->size() + num_rows_ - 1) / num_rows_; }

Batch EvaluationBatches::batch(uint64_t index) const {
  MANTISSA_CHECK(index < size(), InvalidArgument, "evaluation: batch ", index, " of ", size(),
                 "; valid: 0 to ", size() - 1);
  std::vector<Sample> samples;
  const uint64_t end = std::min((index + 1) * num_rows_, dataset_->size());
  for (uint64_t window = index * num_rows_; window < end; ++window) {
    samples.push_back({window, window, genome::Strand::forward});
  }
  return make_batch(fill_buffer(*dataset_, samples), index);
}

}  // namespace mantissa::data
