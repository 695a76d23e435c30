#include "mantissa/tensor/memory_ledger.h"

#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/random.h"

namespace mantissa::tensor::memory {
namespace {

using Book = std::map<std::pair<Category, std::string>, int64_t>;  // without zeros

int64_t total_of(const Book& book) {
  return std::accumulate(book.begin(), book.end(), int64_t{0},
                         [](int64_t sum, const auto& entry) { return sum + entry.second; });
}

Book book_of(const std::vector<Holder>& holders) {
  Book book;
  for (const Holder& holder : holders) {
    book[{holder.category, holder.scope}] += holder.bytes;
  }
  return book;
}

Bytes bytes_of(const Book& book) {
  Bytes bytes;
  for (const auto& [key, size] : book) {
    bytes.by_category[static_cast<size_t>(key.first)] += size;
  }
  return bytes;
}

TEST(Ledger, ThePeakIsACopyOfTheBookAtItsHighest) {
  const uint64_t seed = 23;
  SCOPED_TRACE(seed);
  Random random(seed, 0);
  Ledger ledger;
  struct Item {
    Category category;
    std::string scope;
    int64_t size;
  };
  std::vector<Item> items;
  Book book;
  Book peak;
  const auto change = [&](const Item& item, int64_t bytes) {
    int64_t& entry = book[{item.category, item.scope}];
    entry += bytes;
    if (entry == 0) {
      book.erase({item.category, item.scope});
    }
  };
  const auto holder = [&](const Item& item) {
    return Ledger::holder(item.category, ledger.scope_id(item.scope));
  };
  const auto any = [&] {
    return Item{kCategories[random.below(kCategories.size())],
                random.below(4) == 0 ? "" : "blocks." + std::to_string(random.below(6)),
                static_cast<int64_t>(random.below(1000))};
  };
  for (int i = 0; i < 4000; ++i) {
    const uint64_t action = random.below(20);
    if (action == 0 && i % 50 == 0) {
      ledger.reset_peak();
      peak = book;
    } else if (action < 10 || items.empty()) {
      items.push_back(any());
      ledger.add(holder(items.back()), items.back().size);
      change(items.back(), items.back().size);
    } else {
      Item& item = items[random.below(items.size())];
      change(item, -item.size);
      if (action < 14) {
        const Item old = std::exchange(item, any());
        item.size = old.size;
        ledger.move(holder(old), holder(item), item.size);
        change(item, item.size);
      } else {
        ledger.remove(holder(item), item.size);
        std::swap(item, items.back());
        items.pop_back();
      }
    }
    if (action < 14 && total_of(book) >= total_of(peak)) {
      peak = book;
    }
    ASSERT_EQ(ledger.live(), bytes_of(book)) << i;
    ASSERT_EQ(ledger.total(), total_of(book)) << i;
    ASSERT_EQ(book_of(ledger.peak().holders), peak) << i;
    ASSERT_EQ(ledger.peak().bytes, bytes_of(peak)) << i;
    ASSERT_EQ(ledger.peak_total(), total_of(peak)) << i;
  }
}

TEST(Ledger, TheLargestHolderIsFirst) {
  Ledger ledger;
  ledger.add(Ledger::holder(Category::weights, 0), 10);
  ledger.add(Ledger::holder(Category::activations, ledger.scope_id("b")), 30);
  ledger.add(Ledger::holder(Category::activations, ledger.scope_id("a")), 30);
  ledger.add(Ledger::holder(Category::gradients, ledger.scope_id("a")), 20);
  EXPECT_EQ(ledger.peak().holders, (std::vector<Holder>{{Category::activations, "a", 30},
                                                        {Category::activations, "b", 30},
                                                        {Category::gradients, "a", 20},
                                                        {Category::weights, "", 10}}));
}

}  // namespace
}  // namespace mantissa::tensor::memory
