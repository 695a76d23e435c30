#include "mantissa/train/skip_explanation.h"

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/genome/interval.h"

namespace mantissa::train {
namespace {

bool has_targets(const data::Batch& batch) {
  return batch.targets.ne(data::kIgnore).any().item<bool>();  // the mean of nothing is NaN
}

size_t num_rows(const data::Batch& batch) { return static_cast<size_t>(batch.tokens.size(0)); }

}  // namespace

data::Batch rows_of(const data::Batch& batch, size_t begin, size_t end) {
  const auto first = static_cast<int64_t>(begin);
  const auto last = static_cast<int64_t>(end);
  data::Batch rows;
  rows.tokens = batch.tokens.slice(0, first, last);
  rows.targets = batch.targets.slice(0, first, last);
  rows.index = batch.index;
  if (!batch.positions.empty()) {
    rows.positions.assign(batch.positions.begin() + first, batch.positions.begin() + last);
  }
  return rows;
}

SkipExplanation explain_skip(const tensor::ParameterList& parameters,
                             const std::vector<data::Batch>& microbatches,
                             const std::vector<monitor::ReplayPoint>& points, double scale,
                             const BatchLoss& loss) {
  SkipExplanation skip;
  for (; skip.microbatch < microbatches.size(); ++skip.microbatch) {
    const data::Batch& batch = microbatches[skip.microbatch];
    if (has_targets(batch)) {
      skip.reason = monitor::find_skip_reason(points[skip.microbatch], parameters, scale,
                                              [&] { return loss(batch); });
    }
    if (skip.reason.cause != monitor::SkipCause::unseen) {
      break;
    }
  }
  if (skip.microbatch == microbatches.size()) {
    return {};
  }
  const data::Batch& batch = microbatches[skip.microbatch];
  skip.end = num_rows(batch);
  const auto shows_it = [&](size_t begin, size_t end) {
    const data::Batch rows = rows_of(batch, begin, end);
    return has_targets(rows) && !monitor::is_finite_step(points[skip.microbatch], parameters, 1,
                                                         [&] { return loss(rows); });
  };
  bool are_others_well = false;
  while (monitor::is_model_fault(skip.reason.cause) && skip.end - skip.begin > 1) {
    const size_t middle = skip.begin + (skip.end - skip.begin) / 2;
    const bool first = shows_it(skip.begin, middle);
    const bool second = shows_it(middle, skip.end);
    if (!first && !second) {
      break;  // it takes them together
    }
    are_others_well |= first != second;
    (first ? skip.end : skip.begin) = middle;
  }
  if (!are_others_well) {
    skip.begin = 0;  // it is not of the data: any sequence shows it
    skip.end = num_rows(batch);
  }
  return skip;
}

std::string bases_of(const SkipExplanation& skip, const std::vector<data::Batch>& microbatches,
                     const genome::Genome& genome) {
  const auto& positions = microbatches[skip.microbatch].positions;
  const bool is_seen = skip.reason.cause != monitor::SkipCause::unseen && !positions.empty();
  return is_seen ? genome::to_string(genome, positions[skip.begin].bases) : "";
}

std::string describe(const SkipExplanation& skip, const std::vector<data::Batch>& microbatches,
                     const genome::Genome& genome) {
  const std::string text = monitor::describe(skip.reason);
  const std::string first = bases_of(skip, microbatches, genome);
  if (first.empty()) {
    return text;
  }
  if (skip.end - skip.begin == 1 && num_rows(microbatches[skip.microbatch]) > 1) {
    return concat(text, "; in ", first, " alone");
  }
  return concat(text, "; ", skip.end - skip.begin, " sequences from ", first, " on");
}

}  // namespace mantissa::train
