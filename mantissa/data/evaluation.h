#pragma once

#include <cstdint>
#include <memory>

#include "mantissa/base/api.h"
#include "mantissa/data/batch.h"
#include "mantissa/data/dataset.h"

namespace mantissa::data {

/// All windows of a dataset once, forward, in their order: the same batches in every pass, also
/// what is masked in them. The last one may have fewer rows.
///
///     const EvaluationBatches pass(validation, 32);
///     for (uint64_t i = 0; i < pass.size(); ++i) {
///       const Batch batch = pass.batch(i);
///       ...
///     }
class MANTISSA_API EvaluationBatches {
 public:
  /// Throws InvalidArgument when `batch` is below 1.
  EvaluationBatches(std::shared_ptr<const Dataset> dataset, int64_t batch);

  uint64_t size() const;  // batches

  /// Throws InvalidArgument when `index` is not below size().
  Batch batch(uint64_t index) const;

 private:
  std::shared_ptr<const Dataset> dataset_;
  uint64_t num_rows_;
};

}  // namespace mantissa::data
