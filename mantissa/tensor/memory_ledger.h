#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::tensor::memory {

/// What is live, and what was at the peak, by category and scope. Each call takes the same few
/// operations however many holders there are, but those that read. Calls must not overlap in time.
class MANTISSA_API Ledger {
 public:
  Ledger() { (void)scope_id(""); }

  /// The number of a scope; that of the empty one is 0.
  uint32_t scope_id(const std::string& scope);

  /// The place of (category, scope).
  static uint32_t holder(Category category, uint32_t scope) {
    return scope * static_cast<uint32_t>(kCategories.size()) + static_cast<uint32_t>(category);
  }
  static uint32_t scope_of(uint32_t holder) {
    return holder / static_cast<uint32_t>(kCategories.size());
  }

  static Category category_of(uint32_t holder) {
    return static_cast<Category>(holder % static_cast<uint32_t>(kCategories.size()));
  }

  void add(uint32_t holder, int64_t size_bytes) {
    change(holder, size_bytes);
    total_ += size_bytes;
    note_peak();
  }
  void remove(uint32_t holder, int64_t size_bytes) {
    change(holder, -size_bytes);
    total_ -= size_bytes;
  }
  void move(uint32_t from, uint32_t to, int64_t size_bytes) {
    change(from, -size_bytes);
    change(to, size_bytes);
    note_peak();
  }

  void reset_peak() {
    peak_total_ = total_;
    ++peak_;
  }

  int64_t total() const { return total_; }
  int64_t peak_total() const { return peak_total_; }
  Bytes live() const;
  Peak peak() const;

 private:
  // A holder keeps what it had at the last peak from its first change after it on, so that a new
  // peak is one increment and its record still of one moment.
  struct Entry {
    int64_t live = 0;
    int64_t at_peak = 0;
    uint64_t peak = 0;  // that `at_peak` is of
  };

  void change(uint32_t holder, int64_t bytes) {
    Entry& entry = entries_[holder];
    if (entry.peak != peak_) {
      entry.at_peak = entry.live;
      entry.peak = peak_;
    }
    entry.live += bytes;
  }

  void note_peak() {
    if (total_ >= peak_total_) {
      reset_peak();
    }
  }

  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<std::string> scopes_;
  std::vector<Entry> entries_;  // by holder
  uint64_t peak_ = 1;           // a number for each
  int64_t total_ = 0;
  int64_t peak_total_ = 0;
};

}  // namespace mantissa::tensor::memory
