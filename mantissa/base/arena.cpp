#include "mantissa/base/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>

#include "mantissa/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace mantissa {

// Blocks are described outside of their memory, which may have been given back.
struct Arena::Block {
  std::byte* base;
  int64_t begin;  // from the base
  int64_t size;
  Block* previous;  // by address
  Block* next;
  bool is_free;
  int64_t freed_at;  // a free one's place in the order of frees

  int64_t end() const { return begin + size; }
  std::byte* data() const { return base + begin; }
};

namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Arena::Arena(const ArenaOptions& options) : options_(options) {
  const int64_t size = round_up(options.reserve_bytes, kChunkBytes);
  // One chunk more, so that the base is at the start of one.
  const auto mapped = static_cast<size_t>(size + kChunkBytes);
  void* const range =
      ::mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ++statistics_.system_calls;
  if (range == MAP_FAILED) {
    return;
  }
  const auto address = reinterpret_cast<uintptr_t>(range);
  const auto offset = static_cast<int64_t>((kChunkBytes - address % kChunkBytes) % kChunkBytes);
  base_ = static_cast<std::byte*>(range) + offset;
  ::munmap(range, static_cast<size_t>(offset));
  ::munmap(base_ + size, static_cast<size_t>(kChunkBytes - offset));
  reserved_ = size;
#ifdef MADV_HUGEPAGE
  ::madvise(base_, static_cast<size_t>(size), MADV_HUGEPAGE);  // refused where there are none
#endif
  statistics_.system_calls += 3;
  statistics_.reserved_bytes = size;
}

Arena::~Arena() {
  if (base_ != nullptr) {
    ASAN_UNPOISON_MEMORY_REGION(base_, static_cast<size_t>(committed_));
    ::munmap(base_, static_cast<size_t>(reserved_));
  }
}

void* Arena::data(const Block* block) { return block->data(); }

Arena::Block* Arena::allocate(int64_t size_bytes) {
  if (size_bytes <= 0 || size_bytes > reserved_) {
    return nullptr;
  }
  const int64_t size = round_up(size_bytes, kAlignment);
  const auto fit = free_.lower_bound({size, 0});
  Block* const block = fit != free_.end() ? fit->second : extend(size);
  if (block == nullptr) {
    return nullptr;
  }
  erase_free(block);
  split(block, size);
  block->is_free = false;
  statistics_.live_bytes += size;
  statistics_.live_blocks += 1;
  statistics_.peak_live_bytes = std::max(statistics_.peak_live_bytes, statistics_.live_bytes);
  make_resident(*block);
  ASAN_UNPOISON_MEMORY_REGION(block->data(), static_cast<size_t>(size_bytes));
  return block;
}

void Arena::free(Block* block) {
  MANTISSA_ASSERT(block != nullptr && !block->is_free);
  ASAN_POISON_MEMORY_REGION(block->data(), static_cast<size_t>(block->size));
  statistics_.live_bytes -= block->size;
  statistics_.live_blocks -= 1;
  const auto merge_next = [&](Block* left) {
    Block* const right = left->next;
    left->size += right->size;
    left->next = right->next;
    (right->next != nullptr ? right->next->previous : last_) = left;
    drop_block(right);
    ++statistics_.merges;
  };
  if (block->next != nullptr && block->next->is_free) {
    erase_free(block->next);
    merge_next(block);
  }
  if (block->previous != nullptr && block->previous->is_free) {
    block = block->previous;
    erase_free(block);
    merge_next(block);
  }
  block->freed_at = ++clock_;
  insert_free(block);
}

int64_t Arena::release_cached() { return give_back(std::numeric_limits<int64_t>::max()); }

ArenaStatistics Arena::statistics() const {
  ArenaStatistics result = statistics_;
  result.extent_bytes = last_ == nullptr ? 0 : last_->end();
  result.free_bytes = result.extent_bytes - result.live_bytes;
  result.free_blocks = static_cast<int64_t>(free_.size());
  result.largest_free_bytes = free_.empty() ? 0 : free_.rbegin()->first.first;
  return result;
}

Arena::Block* Arena::make_block(int64_t begin, int64_t size) {
  if (unused_.empty()) {
    unused_.push_back(blocks_.emplace_back(std::make_unique<Block>()).get());
  }
  Block* const block = unused_.back();
  unused_.pop_back();
  *block = Block{base_, begin, size, nullptr, nullptr, true, 0};
  return block;
}

void Arena::drop_block(Block* block) { unused_.push_back(block); }

void Arena::insert_free(Block* block) {
  block->is_free = true;
  free_.emplace(std::pair(block->size, block->begin), block);
}

void Arena::erase_free(Block* block) { free_.erase({block->size, block->begin}); }

// The last block, free and at least so large; null when the end is reached.
Arena::Block* Arena::extend(int64_t size) {
  const int64_t extent = last_ == nullptr ? 0 : last_->end();
  const bool is_last_free = last_ != nullptr && last_->is_free;
  const int64_t begin = is_last_free ? last_->begin : extent;
  if (size > reserved_ - begin || !commit(begin + size)) {
    return nullptr;
  }
  if (is_last_free) {
    erase_free(last_);
    last_->size = size;
  } else {
    Block* const block = make_block(begin, size);
    block->previous = last_;
    if (last_ != nullptr) {
      last_->next = block;
    }
    last_ = block;
  }
  insert_free(last_);
  return last_;
}

bool Arena::commit(int64_t end) {
  if (end <= committed_) {
    return true;
  }
  const int64_t target = round_up(end, kChunkBytes);
  ++statistics_.system_calls;
  if (::mprotect(base_ + committed_, static_cast<size_t>(target - committed_),
                 PROT_READ | PROT_WRITE) != 0) {
    return false;
  }
  ASAN_POISON_MEMORY_REGION(base_ + committed_, static_cast<size_t>(target - committed_));
  resident_.resize(static_cast<size_t>(target / kChunkBytes));
  committed_ = target;
  return true;
}

// Leaves `size` to the block; the rest becomes a free one behind it.
void Arena::split(Block* block, int64_t size) {
  if (block->size == size) {
    return;
  }
  Block* const rest = make_block(block->begin + size, block->size - size);
  rest->freed_at = block->freed_at;
  rest->previous = block;
  rest->next = block->next;
  (block->next != nullptr ? block->next->previous : last_) = rest;
  block->next = rest;
  block->size = size;
  insert_free(rest);
  ++statistics_.splits;
}

int64_t Arena::resident_limit() const {
  const int64_t peak = statistics_.peak_live_bytes;
  const auto share = static_cast<int64_t>(static_cast<double>(peak) * options_.spare_share);
  return peak + std::max(share, options_.spare_bytes);
}

// Before a live block is written to.
void Arena::make_resident(const Block& block) {
  const int64_t first = block.begin / kChunkBytes;
  const int64_t last = (block.end() - 1) / kChunkBytes;
  int64_t added = 0;
  for (int64_t chunk = first; chunk <= last; ++chunk) {
    if (!resident_[static_cast<size_t>(chunk)]) {
      resident_[static_cast<size_t>(chunk)] = true;
      added += kChunkBytes;
    }
  }
  if (added == 0) {
    return;
  }
  statistics_.resident_bytes += added;
  const int64_t excess = statistics_.resident_bytes - resident_limit();
  if (excess > 0) {
    give_back(excess);
  }
  statistics_.peak_resident_bytes =
      std::max(statistics_.peak_resident_bytes, statistics_.resident_bytes);
}

// At least so many bytes where there are as many, of what was freed longest ago.
int64_t Arena::give_back(int64_t bytes) {
  std::vector<const Block*> blocks;
  for (const auto& [key, block] : free_) {
    if (block->size >= kChunkBytes) {
      blocks.push_back(block);
    }
  }
  std::sort(blocks.begin(), blocks.end(),
            [](const Block* a, const Block* b) { return a->freed_at < b->freed_at; });
  int64_t given = 0;
  for (const Block* block : blocks) {
    if (given >= bytes) {
      break;
    }
    given += give_back_chunks(round_up(block->begin, kChunkBytes) / kChunkBytes,
                              block->end() / kChunkBytes, bytes - given);
  }
  return given;
}

// Of the chunks [first, last), the last ones first: a block is used from its beginning.
int64_t Arena::give_back_chunks(int64_t first, int64_t last, int64_t bytes) {
  int64_t given = 0;
  for (int64_t end = last; end > first && given < bytes;) {
    int64_t begin = end;
    while (begin > first && resident_[static_cast<size_t>(begin - 1)] &&
           (end - begin) * kChunkBytes < bytes - given) {
      --begin;
    }
    if (begin == end) {
      --end;  // not resident
      continue;
    }
    const int64_t size = (end - begin) * kChunkBytes;
    ++statistics_.system_calls;
    if (::madvise(base_ + begin * kChunkBytes, static_cast<size_t>(size), MADV_DONTNEED) != 0) {
      break;  // locked in memory
    }
    std::fill(resident_.begin() + begin, resident_.begin() + end, false);
    given += size;
    end = begin;
  }
  statistics_.resident_bytes -= given;
  statistics_.given_back_bytes += given;
  return given;
}

}  // namespace mantissa
