#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/data/batch.h"
#include "mantissa/genome/genome.h"
#include "mantissa/monitor/skip_reason.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::train {

/// Why a step was skipped, and which of its sequences show it.
struct SkipExplanation {
  monitor::SkipReason reason;
  size_t microbatch = 0;  // the first that shows it
  size_t begin = 0;  // rows [begin, end) of that which show it where others do not: one where a
  size_t end = 0;    // single sequence does; all where any does, or it takes them together
};

/// The loss of a batch, or of some rows of one, as its share of the mean over all targets of the
/// step.
using BatchLoss = std::function<at::Tensor(const data::Batch& batch)>;

/// Runs the microbatches of a skipped step again, each from its point, until one shows why
/// (monitor::find_skip_reason); then, where that is the model's fault, ever fewer of its rows, by
/// halves. Where dropout draws other numbers for those, they may not show it alone.
MANTISSA_API SkipExplanation explain_skip(const tensor::ParameterList& parameters,
                                          const std::vector<data::Batch>& microbatches,
                                          const std::vector<monitor::ReplayPoint>& points,
                                          double scale, const BatchLoss& loss);

/// Rows [begin, end) of a batch.
MANTISSA_API data::Batch rows_of(const data::Batch& batch, size_t begin, size_t end);

/// monitor::describe() of the reason, and on which bases: `...; in NC_001416.1:129-257 alone`.
MANTISSA_API std::string describe(const SkipExplanation& skip,
                                  const std::vector<data::Batch>& microbatches,
                                  const genome::Genome& genome);

/// Of the first sequence that shows it: `NC_001416.1:129-257`; empty for a cause that was not seen.
MANTISSA_API std::string bases_of(const SkipExplanation& skip,
                                  const std::vector<data::Batch>& microbatches,
                                  const genome::Genome& genome);

}  // namespace mantissa::train
