#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa {

struct ArenaOptions {
  int64_t reserve_bytes = 0;  // of addresses; memory is taken as blocks need it

  /// Free memory is kept while all of it and the live blocks are within this share, and within so
  /// many bytes, above the most that was ever live; what is beyond goes back to the system.
  double spare_share = 1.0 / 32;
  int64_t spare_bytes = int64_t{4} << 20;
};

struct ArenaStatistics {
  int64_t reserved_bytes = 0;  // of addresses
  int64_t extent_bytes = 0;    // of addresses that blocks, live and free, take
  int64_t resident_bytes = 0;  // at most: huge pages in use, or not yet given back
  int64_t peak_resident_bytes = 0;
  int64_t live_bytes = 0;  // with what rounding adds
  int64_t peak_live_bytes = 0;
  int64_t free_bytes = 0;  // between blocks, resident or given back
  int64_t largest_free_bytes = 0;
  int64_t live_blocks = 0;
  int64_t free_blocks = 0;
  int64_t splits = 0;
  int64_t merges = 0;
  int64_t given_back_bytes = 0;  // in all
  int64_t system_calls = 0;

  bool operator==(const ArenaStatistics&) const = default;
};

/// Memory for large blocks out of one range of addresses, which is reserved at once and backed by
/// huge pages where the system has them. A block is the smallest free one that is large enough, of
/// equal ones that of the lowest address, split when it is larger; a freed one is merged with free
/// neighbours. So the place of a block depends on the calls before alone.
///
///     Arena arena({.reserve_bytes = int64_t{1} << 40});
///     Arena::Block* block = arena.allocate(size_bytes);
///     std::memset(Arena::data(block), 0, size_bytes);
///     arena.free(block);
///
/// Calls must not overlap in time. AddressSanitizer sees accesses to free blocks.
class MANTISSA_API Arena {
 public:
  struct Block;

  /// Of every block, and what sizes are rounded up to.
  static constexpr int64_t kAlignment = 64;
  /// What memory is taken and given back in: a huge page of the common processors.
  static constexpr int64_t kChunkBytes = int64_t{2} << 20;

  /// Where the system refuses the addresses, every allocation is refused.
  explicit Arena(const ArenaOptions& options);
  ~Arena();

  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Null when the range has no such block left or the system no memory. The bytes are whatever
  /// they are.
  [[nodiscard]] Block* allocate(int64_t size_bytes);
  void free(Block* block);

  static void* data(const Block* block);

  /// Gives all free memory back that is whole huge pages. Returns the bytes.
  int64_t release_cached();

  ArenaStatistics statistics() const;

 private:
  using FreeBlocks = std::map<std::pair<int64_t, int64_t>, Block*>;  // by size, then place

  Block* make_block(int64_t begin, int64_t size);
  void drop_block(Block* block);
  void insert_free(Block* block);
  void erase_free(Block* block);
  Block* extend(int64_t size);
  bool commit(int64_t end);
  void split(Block* block, int64_t size);
  void make_resident(const Block& block);
  int64_t give_back(int64_t bytes);
  int64_t give_back_chunks(int64_t first, int64_t last, int64_t bytes);
  int64_t resident_limit() const;

  ArenaOptions options_;
  std::byte* base_ = nullptr;
  int64_t reserved_ = 0;
  int64_t committed_ = 0;       // readable and writable, from the base on
  std::vector<bool> resident_;  // by chunk
  FreeBlocks free_;
  Block* last_ = nullptr;  // by address
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> unused_;
  int64_t clock_ = 0;
  ArenaStatistics statistics_;
};

}  // namespace mantissa
