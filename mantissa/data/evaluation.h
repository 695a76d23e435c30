#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/data/batch.h"
#include "mantissa/data/dataset.h"
#include "mantissa/data/sampler.h"
#include "mantissa/genome/interval.h"

namespace mantissa::data {

struct EvaluationOptions {
  int64_t batch = 32;   // windows a batch
  int64_t windows = 0;  // how many, evenly spread; 0, or more than there are: all
};

/// The windows of a dataset once, forward, in their order, or some that are evenly spread over it:
/// the same ones in every pass, also what is masked in them, whatever the batch. The last batch may
/// have fewer rows.
///
///     const EvaluationBatches pass(validation, {.batch = 32});
///     for (uint64_t i = 0; i < pass.size(); ++i) {
///       const Batch batch = pass.batch(i);
///       ...
///     }
class MANTISSA_API EvaluationBatches {
 public:
  /// Throws InvalidArgument for options out of range.
  EvaluationBatches(std::shared_ptr<const Dataset> dataset, const EvaluationOptions& options);

  uint64_t size() const { return (num_windows_ + num_rows_ - 1) / num_rows_; }

  /// Throws InvalidArgument when `index` is not below size().
  Batch batch(uint64_t index) const;

  /// The bases of all its windows, joined where windows touch or overlap.
  std::vector<genome::Interval> bases() const;

 private:
  std::vector<Sample> samples_of(uint64_t index) const;

  std::shared_ptr<const Dataset> dataset_;
  uint64_t num_rows_;
  uint64_t num_windows_;
};

}  // namespace mantissa::data
