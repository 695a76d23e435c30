#include "mantissa/train/allele_scorer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::train {
namespace {

using genome::AlleleWindow;
using genome::AlleleWindows;

constexpr double kNotScored = std::numeric_limits<double>::quiet_NaN();
// Windows of one pass of an insertion or deletion, which bounds its memory.
constexpr size_t kPassWindows = 64;

std::vector<int64_t> tokens_of(const std::string& letters) {
  std::vector<int64_t> tokens(letters.size());
  data::encode({reinterpret_cast<const uint8_t*>(letters.data()), letters.size()}, tokens);
  return tokens;
}

// (rows, length)
at::Tensor stack(const std::vector<std::vector<int64_t>>& rows, size_t length) {
  at::Tensor tokens =
      at::empty({static_cast<int64_t>(rows.size()), static_cast<int64_t>(length)}, at::kLong);
  auto* to = tokens.mutable_data_ptr<int64_t>();
  for (const std::vector<int64_t>& row : rows) {
    to = std::copy_n(row.begin(), length, to);
  }
  return tokens;
}

// log p of a token at a place of a row, out of (rows, length, vocabulary).
class Table {
 public:
  explicit Table(const at::Tensor& values)
      : values_(values.contiguous()), data_(values_.const_data_ptr<double>()) {}

  double at(size_t row, size_t place, int64_t token) const {
    const auto length = static_cast<size_t>(values_.size(1));
    const auto vocabulary = static_cast<size_t>(values_.size(2));
    return data_[(row * length + place) * vocabulary + static_cast<size_t>(token)];
  }

 private:
  at::Tensor values_;
  const double* data_;
};

bool all_finite(const std::vector<double>& values, const std::vector<int64_t>& targets) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (data::is_base(targets[i]) && !std::isfinite(values[i])) {
      return false;
    }
  }
  return true;
}

// What log_ratio() leaves out as not scored must not hide what the network could not say.
double ratio(const std::vector<double>& reference, const std::vector<int64_t>& reference_targets,
             const std::vector<double>& alternative,
             const std::vector<int64_t>& alternative_targets) {
  return all_finite(reference, reference_targets) && all_finite(alternative, alternative_targets)
             ? genome::log_ratio(reference, alternative)
             : std::numeric_limits<double>::quiet_NaN();
}

// The places that a pseudo-log-likelihood is taken of: as many in both windows.
std::pair<size_t, size_t> touched(const AlleleWindow& window) {
  const uint64_t span = std::max(window.reference_span, window.alternative_span);
  const uint64_t begin = window.begin - std::min(window.begin, AlleleScorer::kFlank);
  const uint64_t end =
      std::min<uint64_t>(window.begin + span + AlleleScorer::kFlank, window.reference.size());
  return {begin, end};
}

}  // namespace

AlleleScorer::AlleleScorer(const RunModel& model, data::Objective objective, int64_t context)
    : model_(model), objective_(objective), context_(context) {
  MANTISSA_CHECK(context >= 2, InvalidArgument, "score: context ", context,
                 "; valid: 2 or more tokens");
}

uint64_t AlleleScorer::window_bases() const {
  return static_cast<uint64_t>(context_) + (objective_ == data::Objective::causal ? 1 : 0);
}

AlleleScore AlleleScorer::score(const AlleleWindows& windows) const {
  if (objective_ == data::Objective::causal) {
    return causal(windows);
  }
  const AlleleWindow& window = windows.strands[0];
  return window.reference_span == window.alternative_span ? masked_substitution(windows)
                                                          : masked_indel(windows);
}

AlleleScore AlleleScorer::causal(const AlleleWindows& windows) const {
  std::vector<std::vector<int64_t>> rows;  // forward reference and alternative, reverse ones
  for (const AlleleWindow& window : windows.strands) {
    rows.push_back(tokens_of(window.reference));
    rows.push_back(tokens_of(window.alternative));
  }
  const size_t length = rows[0].size() - 1;
  const Table table(model_.log_probabilities(stack(rows, length)));
  std::array<std::vector<double>, 4> log_p;
  std::array<std::vector<int64_t>, 4> targets;
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t i = 0; i < length; ++i) {
      const int64_t target = rows[row][i + 1];
      targets.at(row).push_back(target);
      log_p.at(row).push_back(data::is_base(target) ? table.at(row, i, target) : kNotScored);
    }
  }
  return {ratio(log_p[0], targets[0], log_p[1], targets[1]),
          ratio(log_p[2], targets[2], log_p[3], targets[3])};
}

AlleleScore AlleleScorer::masked_substitution(const AlleleWindows& windows) const {
  std::vector<std::vector<int64_t>> rows;
  for (const AlleleWindow& window : windows.strands) {
    std::vector<int64_t> row = tokens_of(window.reference);
    for (size_t i = 0; i < row.size(); ++i) {
      if (window.reference[i] != window.alternative[i]) {
        row[i] = data::kMask;
      }
    }
    rows.push_back(std::move(row));
  }
  const Table table(model_.log_probabilities(stack(rows, rows[0].size())));
  std::array<double, 2> sums{};
  for (size_t strand = 0; strand < 2; ++strand) {
    const AlleleWindow& window = windows.strands[strand];
    for (size_t i = 0; i < window.reference.size(); ++i) {
      if (window.reference[i] != window.alternative[i]) {
        const auto token = [](char letter) { return data::token_of(static_cast<uint8_t>(letter)); };
        sums[strand] += table.at(strand, i, token(window.alternative[i])) -
                        table.at(strand, i, token(window.reference[i]));
      }
    }
  }
  return {sums[0], sums[1]};
}

AlleleScore AlleleScorer::masked_indel(const AlleleWindows& windows) const {
  // A place of a window that is hidden in a row of its own.
  struct Hidden {
    size_t series;
    size_t place;
    int64_t token;
  };
  std::vector<Hidden> hidden;
  std::array<std::vector<int64_t>, 4> whole;    // reference and alternative of each strand
  std::array<std::vector<double>, 4> log_p;     // of the places
  std::array<std::vector<int64_t>, 4> targets;  // there
  for (size_t series = 0; series < 4; ++series) {
    const AlleleWindow& window = windows.strands.at(series / 2);
    whole.at(series) = tokens_of(series % 2 == 0 ? window.reference : window.alternative);
    const auto [begin, end] = touched(window);
    for (size_t place = begin; place < end; ++place) {
      hidden.push_back({series, place, whole.at(series)[place]});
    }
  }
  for (size_t first = 0; first < hidden.size(); first += kPassWindows) {
    const std::span<const Hidden> pass = std::span<const Hidden>(hidden).subspan(
        first, std::min(kPassWindows, hidden.size() - first));
    std::vector<std::vector<int64_t>> rows;
    for (const Hidden& one : pass) {
      rows.push_back(whole.at(one.series));
      rows.back()[one.place] = data::kMask;
    }
    const Table table(model_.log_probabilities(stack(rows, rows[0].size())));
    for (size_t row = 0; row < pass.size(); ++row) {
      const Hidden& one = pass[row];
      const bool is_scored = data::is_base(one.token);
      targets.at(one.series).push_back(one.token);
      log_p.at(one.series).push_back(is_scored ? table.at(row, one.place, one.token) : kNotScored);
    }
  }
  return {ratio(log_p[0], targets[0], log_p[1], targets[1]),
          ratio(log_p[2], targets[2], log_p[3], targets[3])};
}

}  // namespace mantissa::train
