#include "mantissa/base/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/random.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace mantissa {
namespace {

using Block = Arena::Block;

constexpr int64_t kMebibyte = int64_t{1} << 20;

std::byte* bytes_of(const Block* block) { return static_cast<std::byte*>(Arena::data(block)); }

int64_t rounded(int64_t size) {
  return (size + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

// The rules, slow and clear: segments in the order of addresses, of which the free ones have no
// free neighbour.
class ModelArena {
 public:
  // The place of a new block.
  int64_t allocate(int64_t size_bytes) {
    const int64_t size = rounded(size_bytes);
    auto best = segments_.end();
    for (auto it = segments_.begin(); it != segments_.end(); ++it) {
      const auto& [begin, segment] = *it;
      if (segment.is_free && segment.size >= size &&
          (best == segments_.end() || segment.size < best->second.size)) {
        best = it;
      }
    }
    if (best == segments_.end()) {
      if (!segments_.empty() && segments_.rbegin()->second.is_free) {
        best = std::prev(segments_.end());
        best->second.size = size;
      } else {
        best = segments_.emplace(extent(), Segment{size, true}).first;
      }
    }
    const int64_t rest = best->second.size - size;
    best->second = {size, false};
    if (rest > 0) {
      segments_[best->first + size] = {rest, true};
    }
    return best->first;
  }

  void free(int64_t begin) {
    segments_.at(begin).is_free = true;
    std::map<int64_t, Segment> merged;
    for (const auto& [at, segment] : segments_) {
      if (!merged.empty() && merged.rbegin()->second.is_free && segment.is_free) {
        merged.rbegin()->second.size += segment.size;
      } else {
        merged[at] = segment;
      }
    }
    segments_ = std::move(merged);
  }

  int64_t extent() const {
    return segments_.empty() ? 0 : segments_.rbegin()->first + segments_.rbegin()->second.size;
  }

  // Those that follow from the segments.
  ArenaStatistics statistics() const {
    ArenaStatistics result;
    result.extent_bytes = extent();
    for (const auto& [begin, segment] : segments_) {
      (segment.is_free ? result.free_bytes : result.live_bytes) += segment.size;
      (segment.is_free ? result.free_blocks : result.live_blocks) += 1;
      if (segment.is_free) {
        result.largest_free_bytes = std::max(result.largest_free_bytes, segment.size);
      }
    }
    return result;
  }

 private:
  struct Segment {
    int64_t size;
    bool is_free;
  };
  std::map<int64_t, Segment> segments_;
};

// All blocks of an arena begin at the first one, or behind it.
class ArenaTest : public ::testing::Test {
 protected:
  explicit ArenaTest(const ArenaOptions& options = {.reserve_bytes = 1024 * kMebibyte})
      : arena_(options) {
    Block* const first = arena_.allocate(1);
    base_ = bytes_of(first);
    arena_.free(first);
  }

  int64_t place(const Block* block) const { return bytes_of(block) - base_; }

  // What the system has in memory of the arena's addresses.
  int64_t resident_bytes() const {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const auto size = static_cast<size_t>(arena_.statistics().extent_bytes);
    std::vector<unsigned char> pages((size + page - 1) / page);
    EXPECT_EQ(::mincore(base_, size, pages.data()), 0);
    return static_cast<int64_t>(page) *
           std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
  }

  Arena arena_;
  std::byte* base_ = nullptr;
};

// At both ends, which a neighbour would overwrite first.
void write_ends(const Block* block, int64_t size, uint64_t value) {
  const auto length = static_cast<size_t>(std::min<int64_t>(size, sizeof(value)));
  std::memcpy(bytes_of(block), &value, length);
  std::memcpy(bytes_of(block) + size - static_cast<int64_t>(length), &value, length);
}

bool has_ends(const Block* block, int64_t size, uint64_t value) {
  const auto length = static_cast<size_t>(std::min<int64_t>(size, sizeof(value)));
  return std::memcmp(bytes_of(block) + size - static_cast<int64_t>(length), &value, length) == 0 &&
         (size < static_cast<int64_t>(2 * sizeof(value)) ||
          std::memcmp(bytes_of(block), &value, length) == 0);
}

TEST_F(ArenaTest, RandomWorkAgreesWithTheModel) {
  const uint64_t seed = 7;
  SCOPED_TRACE(seed);
  Random random(seed, 0);
  ModelArena model;
  model.free(model.allocate(1));  // the fixture's
  struct Live {
    Block* block;
    int64_t size;
    uint64_t value;
  };
  std::vector<Live> live;
  int64_t peak = Arena::kAlignment;
  for (int i = 0; i < 6000; ++i) {
    // Waves, so that the arena is now full, now nearly empty.
    const bool grows = random.below(100) < (i / 500 % 2 == 0 ? 65U : 35U);
    if (grows || live.empty()) {
      const int64_t limit = random.below(4) == 0 ? 3 * kMebibyte : 20'000;
      const auto size = static_cast<int64_t>(1 + random.below(static_cast<uint64_t>(limit)));
      Block* const block = arena_.allocate(size);
      ASSERT_NE(block, nullptr);
      ASSERT_EQ(place(block), model.allocate(size)) << "call " << i;
      ASSERT_EQ(reinterpret_cast<uintptr_t>(Arena::data(block)) % Arena::kAlignment, 0U);
      live.push_back({block, size, random.next_u64()});
      write_ends(block, size, live.back().value);
    } else {
      std::swap(live[random.below(live.size())], live.back());
      const Live& freed = live.back();
      ASSERT_TRUE(has_ends(freed.block, freed.size, freed.value)) << "call " << i;
      model.free(place(freed.block));
      arena_.free(freed.block);
      live.pop_back();
    }
    if (random.below(200) == 0) {
      arena_.release_cached();
    }
    const ArenaStatistics found = arena_.statistics();
    const ArenaStatistics expected = model.statistics();
    peak = std::max(peak, expected.live_bytes);
    ASSERT_EQ(found.live_bytes, expected.live_bytes);
    ASSERT_EQ(found.live_blocks, expected.live_blocks);
    ASSERT_EQ(found.free_bytes, expected.free_bytes);
    ASSERT_EQ(found.free_blocks, expected.free_blocks);
    ASSERT_EQ(found.largest_free_bytes, expected.largest_free_bytes);
    ASSERT_EQ(found.extent_bytes, expected.extent_bytes);
    ASSERT_EQ(found.peak_live_bytes, peak);
  }
  for (const Live& left : live) {
    EXPECT_TRUE(has_ends(left.block, left.size, left.value));
    arena_.free(left.block);
  }
  const ArenaStatistics end = arena_.statistics();
  EXPECT_EQ(end.free_blocks, 1);
  EXPECT_EQ(end.largest_free_bytes, end.extent_bytes);
  EXPECT_EQ(end.live_bytes, 0);
}

TEST_F(ArenaTest, EqualCallsGiveEqualPlaces) {
  Arena other({.reserve_bytes = 1024 * kMebibyte});
  Random random(3, 0);
  std::vector<std::pair<Block*, Block*>> live;
  std::byte* const other_base = [&] {
    Block* const first = other.allocate(1);
    other.free(first);
    return bytes_of(first);
  }();
  for (int i = 0; i < 2000; ++i) {
    if (live.empty() || random.below(5) < 3) {
      const auto size = static_cast<int64_t>(1 + random.below(100'000));
      live.emplace_back(arena_.allocate(size), other.allocate(size));
      ASSERT_EQ(place(live.back().first), bytes_of(live.back().second) - other_base);
    } else {
      std::swap(live[random.below(live.size())], live.back());
      arena_.free(live.back().first);
      other.free(live.back().second);
      live.pop_back();
    }
  }
  EXPECT_EQ(arena_.statistics(), other.statistics());
}

TEST_F(ArenaTest, TheSmallestThatFitsIsTakenAndOfEqualOnesTheFirst) {
  std::vector<Block*> blocks;
  for (const int64_t size : {6400, 64, 3200, 64, 3200, 64}) {
    blocks.push_back(arena_.allocate(size));
  }
  arena_.free(blocks[4]);
  arena_.free(blocks[0]);
  arena_.free(blocks[2]);
  EXPECT_EQ(place(arena_.allocate(3000)), 6400 + 64);
  EXPECT_EQ(place(arena_.allocate(3200)), 6400 + 64 + 3200 + 64);
  EXPECT_EQ(place(arena_.allocate(3264)), 0);
}

TEST_F(ArenaTest, AFreedBlockIsMergedWithFreeNeighboursOnBothSides) {
  for (const bool is_left_free : {false, true}) {
    for (const bool is_right_free : {false, true}) {
      Block* const left = arena_.allocate(640);
      Block* const middle = arena_.allocate(640);
      Block* const right = arena_.allocate(640);
      Block* const end = arena_.allocate(640);
      const int64_t merges = arena_.statistics().merges;
      if (is_left_free) {
        arena_.free(left);
      }
      if (is_right_free) {
        arena_.free(right);
      }
      arena_.free(middle);
      const ArenaStatistics statistics = arena_.statistics();
      EXPECT_EQ(statistics.merges - merges, (is_left_free ? 1 : 0) + (is_right_free ? 1 : 0));
      if (!is_left_free) {
        arena_.free(left);
      }
      if (!is_right_free) {
        arena_.free(right);
      }
      arena_.free(end);
      EXPECT_EQ(arena_.statistics().free_blocks, 1);
    }
  }
}

TEST_F(ArenaTest, MemoryThatWasGivenBackIsZeroAndServesAgain) {
  constexpr int64_t kSize = 16 * kMebibyte;
  Block* const block = arena_.allocate(kSize);
  std::memset(Arena::data(block), 1, kSize);
  EXPECT_GE(resident_bytes(), kSize);
  arena_.free(block);
  EXPECT_GE(resident_bytes(), kSize);  // kept
  EXPECT_EQ(arena_.release_cached(), kSize);
  EXPECT_EQ(arena_.release_cached(), 0);
  EXPECT_LE(resident_bytes(), arena_.statistics().resident_bytes);
  EXPECT_EQ(arena_.statistics().resident_bytes, 0);
  EXPECT_EQ(arena_.statistics().given_back_bytes, kSize);
  Block* const again = arena_.allocate(kSize);
  EXPECT_EQ(place(again), 0);
  EXPECT_EQ(bytes_of(again)[5 * kMebibyte], std::byte{0});
  EXPECT_EQ(arena_.statistics().resident_bytes, kSize);
}

TEST_F(ArenaTest, LiveNeighboursOfWhatIsGivenBackKeepTheirBytes) {
  Block* const left = arena_.allocate(kMebibyte);
  Block* const middle = arena_.allocate(16 * kMebibyte);
  Block* const right = arena_.allocate(kMebibyte);
  std::memset(Arena::data(left), 1, kMebibyte);
  std::memset(Arena::data(middle), 2, 16 * kMebibyte);
  std::memset(Arena::data(right), 3, kMebibyte);
  arena_.free(middle);
  // From 1 to 17 MiB there are seven whole pages of 2 MiB.
  EXPECT_EQ(arena_.release_cached(), 14 * kMebibyte);
  EXPECT_TRUE(std::all_of(bytes_of(left), bytes_of(left) + kMebibyte,
                          [](std::byte b) { return b == std::byte{1}; }));
  EXPECT_TRUE(std::all_of(bytes_of(right), bytes_of(right) + kMebibyte,
                          [](std::byte b) { return b == std::byte{3}; }));
  EXPECT_LE(resident_bytes(), 4 * kMebibyte);
}

// A training step: each layer keeps activations, backward frees them in reverse; between them
// there are temporaries, and the lengths of sequences change from step to step.
TEST_F(ArenaTest, FreeMemoryStaysWithinTheBoundWhileLengthsVary) {
  const uint64_t seed = 19;
  SCOPED_TRACE(seed);
  Random random(seed, 0);
  const auto allocate = [&](int64_t size) {
    Block* const block = arena_.allocate(size);
    for (int64_t at = 0; at < size; at += 4096) {
      bytes_of(block)[at] = std::byte{1};
    }
    return block;
  };
  std::vector<Block*> state;  // weights and moments, and gradients from the first step on
  state.reserve(16);
  for (int i = 0; i < 16; ++i) {
    state.push_back(allocate(500'000 + i));
  }
  int64_t most_resident = 0;
  for (int step = 0; step < 24; ++step) {
    const int64_t length = step % 8 == 3 ? 512 : static_cast<int64_t>(64 + random.below(448));
    const auto activation = [&](int64_t width) { return allocate(length * 8 * width); };
    std::vector<Block*> kept;
    for (int layer = 0; layer < 4; ++layer) {
      for (const int64_t width : {256, 768, 256, 1024, 1024, 256}) {
        Block* const temporary = activation(width);
        kept.push_back(activation(width + layer));
        arena_.free(temporary);
      }
    }
    most_resident = std::max(most_resident, resident_bytes());
    while (!kept.empty()) {
      Block* const gradient = activation(256 + static_cast<int64_t>(random.below(1024)));
      arena_.free(kept.back());
      kept.pop_back();
      if (step == 0 && kept.size() % 2 == 0) {
        state.push_back(allocate(250'000));
      }
      arena_.free(gradient);
    }
    most_resident = std::max(most_resident, resident_bytes());
  }
  const ArenaStatistics statistics = arena_.statistics();
  EXPECT_GT(statistics.given_back_bytes, 0);
  EXPECT_LE(most_resident, statistics.peak_resident_bytes);
  EXPECT_LE(static_cast<double>(most_resident),
            1.10 * static_cast<double>(statistics.peak_live_bytes));
}

// What is kept beyond the most that was live.
TEST(Arena, OldestFreeMemoryGoesBackBeforeMoreIsTaken) {
  Arena arena({.reserve_bytes = 256 * kMebibyte, .spare_share = 0, .spare_bytes = 0});
  std::vector<Block*> blocks;
  blocks.reserve(8);
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(arena.allocate(4 * kMebibyte));
    std::memset(Arena::data(blocks.back()), 1, 4 * kMebibyte);
  }
  std::vector<std::byte*> freed;
  for (const size_t i : {5, 1, 3}) {  // in this order
    freed.push_back(bytes_of(blocks[i]));
    arena.free(blocks[i]);
  }
  EXPECT_EQ(arena.statistics().given_back_bytes, 0);
  Block* const larger = arena.allocate(8 * kMebibyte);
  ASSERT_NE(larger, nullptr);
  const ArenaStatistics statistics = arena.statistics();
  EXPECT_EQ(statistics.peak_live_bytes, 32 * kMebibyte);
  EXPECT_EQ(statistics.resident_bytes, 32 * kMebibyte);
  EXPECT_EQ(statistics.given_back_bytes, 8 * kMebibyte);
  const auto is_resident = [](std::byte* address) {
    unsigned char page = 0;
    EXPECT_EQ(::mincore(address, 1, &page), 0);
    return (page & 1) != 0;
  };
  EXPECT_FALSE(is_resident(freed[0]));
  EXPECT_FALSE(is_resident(freed[1]));
  EXPECT_TRUE(is_resident(freed[2]));
}

TEST(Arena, AFullRangeRefusesUntilSomethingIsFreed) {
  Arena arena({.reserve_bytes = 8 * kMebibyte});
  EXPECT_EQ(arena.statistics().reserved_bytes, 8 * kMebibyte);
  EXPECT_EQ(arena.allocate(8 * kMebibyte + 1), nullptr);
  EXPECT_EQ(arena.allocate(0), nullptr);
  Block* const first = arena.allocate(3 * kMebibyte);
  Block* const second = arena.allocate(5 * kMebibyte);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(arena.allocate(1), nullptr);
  const ArenaStatistics full = arena.statistics();
  EXPECT_EQ(full.live_bytes, 8 * kMebibyte);
  arena.free(first);
  EXPECT_EQ(arena.allocate(3 * kMebibyte + 1), nullptr);
  EXPECT_NE(arena.allocate(3 * kMebibyte), nullptr);
  EXPECT_EQ(arena.statistics().live_bytes, full.live_bytes);
}

TEST(Arena, WithoutAddressesEverythingIsRefused) {
  Arena arena({.reserve_bytes = int64_t{1} << 60});
  EXPECT_EQ(arena.allocate(64), nullptr);
  EXPECT_EQ(arena.statistics().reserved_bytes, 0);
  EXPECT_EQ(arena.release_cached(), 0);
}

#if defined(__SANITIZE_ADDRESS__)
TEST_F(ArenaTest, AddressSanitizerSeesWhatIsFreeAndWhatIsBehindABlock) {
  Block* const block = arena_.allocate(100);
  const std::byte* const bytes = bytes_of(block);
  EXPECT_FALSE(__asan_address_is_poisoned(bytes + 99));
  EXPECT_TRUE(__asan_address_is_poisoned(bytes + 100));
  arena_.free(block);
  EXPECT_TRUE(__asan_address_is_poisoned(bytes));
}
#endif

}  // namespace
}  // namespace mantissa
