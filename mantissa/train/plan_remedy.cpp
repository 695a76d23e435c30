#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/train/plan.h"

namespace mantissa::train {
namespace {

// Changes of one kind, the cheapest first.
using Ladder = std::vector<Change>;

Change setting(const Sharding& sharding, const std::string& key, const std::string& value) {
  return {{{key, value}}, sharding, concat("--set ", key, "=", value)};
}

Ladder recomputations(const RunConfig& config, const Sharding& sharding) {
  constexpr std::array kLevels = {"none", "elementwise", "block", "full"};
  const auto* const now = std::find(kLevels.begin(), kLevels.end(), config.train.recompute);
  Ladder ladder;
  for (const auto* level = now; level != kLevels.end(); ++level) {
    if (level != now) {
      ladder.push_back(setting(sharding, "train.recompute", *level));
      ladder.back().text = concat("--recompute ", *level);
    }
  }
  return ladder;
}

Ladder microbatches(const RunConfig& config, const Sharding& sharding) {
  Ladder ladder;
  for (int64_t rows = config.microbatch() - 1; rows > 0; --rows) {
    if (config.train.batch % rows == 0) {
      ladder.push_back(setting(sharding, "train.microbatch", std::to_string(rows)));
    }
  }
  return ladder;
}

// Weights in 16 bits need masters; moments in 8 bits a quick second moment
// (docs/guides/optimizers.md).
Ladder fewer_bits(const RunConfig& config, const Sharding& sharding) {
  Ladder ladder;
  const auto add = [&](const std::vector<Setting>& settings) {
    Change change;
    change.sharding = sharding;
    if (!ladder.empty()) {
      change = ladder.back();
    }
    for (const Setting& added : settings) {
      change.settings.push_back(added);
      change.text += concat(change.text.empty() ? "" : " ", "--set ", added.key, "=", added.value);
    }
    ladder.push_back(std::move(change));
  };
  const std::string& compute = config.precision.compute;
  if (compute == "bf16" && config.optim.masters == "fp32") {
    if (config.precision.param == "bf16") {
      add({{"optim.masters", "split"}});
    } else {
      add({{"precision.param", "bf16"}, {"optim.masters", "split"}});
    }
  }
  if (config.optim.moments == "fp32") {
    add({{"optim.moments", "bf16"}});
  }
  return ladder;
}

Ladder stages(const Sharding& sharding) {
  Ladder ladder;
  for (int zero = sharding.zero + 1; zero <= 3 && sharding.ranks > 1; ++zero) {
    ladder.push_back({{}, {sharding.ranks, zero}, concat("--zero ", zero)});
  }
  return ladder;
}

Ladder more_ranks(const Sharding& sharding) {
  constexpr int64_t kMostRanks = 4096;
  const int zero = std::max(1, sharding.zero);  // without a stage more ranks share nothing
  Ladder ladder;
  for (int64_t ranks = 2 * sharding.ranks; ranks <= kMostRanks; ranks *= 2) {
    ladder.push_back({{}, {ranks, zero}, concat("--ranks ", ranks)});
    if (zero != sharding.zero) {
      ladder.back().text += concat(" --zero ", zero);
    }
  }
  return ladder;
}

Change together(Change first, const Change& second) {
  first.settings = overridden(std::move(first.settings), second.settings);
  first.sharding = second.sharding;
  first.text += concat(first.text.empty() ? "" : " ", second.text);
  return first;
}

/// The search, with what the run takes after each set of settings that was looked at.
class Search {
 public:
  Search(const Configure& configure, int64_t device_bytes)
      : configure_(configure), device_bytes_(device_bytes) {}

  // Nothing for a change that the run file does not allow.
  std::optional<Remedy> apply(const Change& change) {
    try {
      return Remedy{change, rank_bytes(of(change.settings), change.sharding)};
    } catch (const InvalidArgument&) {
      return std::nullopt;
    }
  }

  bool fits(const std::optional<Remedy>& remedy) const {
    return remedy && remedy->bytes.total() <= device_bytes_;
  }

  // The first of a ladder that fits on top of `base`, or the one that takes least.
  std::optional<Remedy> climb(const Change& base, const Ladder& ladder) {
    std::optional<Remedy> best;
    for (const Change& step : ladder) {
      std::optional<Remedy> here = apply(together(base, step));
      if (fits(here)) {
        return here;
      }
      if (here && (!best || here->bytes.total() < best->bytes.total())) {
        best = here;
      }
    }
    return best;
  }

  const Footprint& of(const std::vector<Setting>& settings) {
    std::string key;
    for (const Setting& setting : settings) {
      key += setting.key + "=" + setting.value + "\n";
    }
    if (key != key_ || !footprint_) {
      footprint_ = footprint(configure_(settings));
      key_ = key;
    }
    return *footprint_;
  }

 private:
  const Configure& configure_;
  int64_t device_bytes_;
  std::string key_;
  std::optional<Footprint> footprint_;  // of the last settings: stages and ranks share it
};

}  // namespace

std::vector<Setting> overridden(std::vector<Setting> settings, const std::vector<Setting>& more) {
  for (const Setting& setting : more) {
    std::erase_if(settings, [&](const Setting& other) { return other.key == setting.key; });
    settings.push_back(setting);
  }
  return settings;
}

std::optional<Remedy> cheapest_remedy(const Configure& configure, const Sharding& sharding,
                                      int64_t device_bytes) {
  Search search(configure, device_bytes);
  const RunConfig config = configure({});
  const Change none = {{}, sharding, ""};
  const auto ladders = [&](const Sharding& from) {
    return std::vector<Ladder>{recomputations(config, from), microbatches(config, from),
                               fewer_bits(config, from), stages(from), more_ranks(from)};
  };
  for (const Ladder& ladder : ladders(sharding)) {
    std::optional<Remedy> remedy = search.climb(none, ladder);
    if (search.fits(remedy)) {
      return remedy;
    }
  }
  std::optional<Remedy> so_far = search.apply(none);
  for (size_t kind = 0; so_far && kind < ladders(sharding).size(); ++kind) {
    const Ladder ladder = ladders(so_far->change.sharding)[kind];
    std::optional<Remedy> next = search.climb(so_far->change, ladder);
    if (search.fits(next)) {
      return next;
    }
    if (next && next->bytes.total() < so_far->bytes.total()) {
      so_far = next;
    }
  }
  return std::nullopt;
}

Setting fitting_microbatch(const Configure& configure, const Sharding& sharding,
                           int64_t device_bytes) {
  RunConfig config = configure({});
  Search search(configure, device_bytes);
  config.train.microbatch = config.train.batch + 1;
  for (const Change& change : microbatches(config, sharding)) {
    if (search.fits(search.apply(change))) {
      return change.settings.front();
    }
  }
  return {"train.microbatch", "1"};
}

}  // namespace mantissa::train
