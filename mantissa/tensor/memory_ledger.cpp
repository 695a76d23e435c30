#include "mantissa/tensor/memory_ledger.h"

#include <algorithm>
#include <tuple>

namespace mantissa::tensor::memory {

uint32_t Ledger::scope_id(const std::string& scope) {
  const auto [found, is_new] = ids_.try_emplace(scope, static_cast<uint32_t>(scopes_.size()));
  if (is_new) {
    scopes_.push_back(scope);
    entries_.resize(scopes_.size() * kCategories.size());
  }
  return found->second;
}

Bytes Ledger::live() const {
  Bytes result;
  for (size_t i = 0; i < entries_.size(); ++i) {
    result.by_category[i % kCategories.size()] += entries_[i].live;
  }
  return result;
}

Peak Ledger::peak() const {
  Peak result;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const int64_t bytes = entry.peak == peak_ ? entry.at_peak : entry.live;
    const Category category = kCategories[i % kCategories.size()];
    if (bytes != 0) {
      result.bytes.by_category[static_cast<size_t>(category)] += bytes;
      result.holders.push_back({category, scopes_[i / kCategories.size()], bytes});
    }
  }
  std::sort(result.holders.begin(), result.holders.end(), [](const Holder& a, const Holder& b) {
    return std::tie(b.bytes, a.category, a.scope) < std::tie(a.bytes, b.category, b.scope);
  });
  return result;
}

}  // namespace mantissa::tensor::memory
