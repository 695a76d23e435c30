#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "mantissa/record/event.h"

namespace mantissa::record {

/// Rows of operations that are alike by a key, added up: calls, time, work and bytes. All else is
/// that of the first row with the key.
template <typename Key>
class OperationSums {
 public:
  /// The sum with `row` in it.
  OperationRow& add(const Key& key, const OperationRow& row) {
    const auto [place, is_new] = sums_.try_emplace(key, row);
    OperationRow& sum = place->second;
    if (!is_new) {
      sum.calls += row.calls;
      sum.time_s += row.time_s;
      sum.flops += row.flops;
      sum.bytes += row.bytes;
    }
    return sum;
  }

  const std::map<Key, OperationRow>& by_key() const { return sums_; }

  /// Those with the most time first.
  std::vector<OperationRow> by_time() const {
    std::vector<OperationRow> rows;
    rows.reserve(sums_.size());
    for (const auto& [key, row] : sums_) {
      rows.push_back(row);
    }
    std::stable_sort(rows.begin(), rows.end(), [](const OperationRow& a, const OperationRow& b) {
      return a.time_s > b.time_s;
    });
    return rows;
  }

 private:
  std::map<Key, OperationRow> sums_;
};

}  // namespace mantissa::record
