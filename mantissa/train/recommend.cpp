#include "mantissa/train/recommend.h"

#include <algorithm>
#include <exception>
#include <initializer_list>
#include <map>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::train {
namespace {

using numerics::Format;

constexpr int kLeastTrials = 8;
constexpr int kReserved = 2;  // to show that what was found cures, in full and in short form

// What is kept or not kept together.
using Group = std::vector<Keep>;
using Groups = std::vector<Group>;

amp::Policy with_range(const amp::Policy& policy) {
  return with_formats(policy,
                      [](Format format) { return format == Format::fp16 ? Format::bf16 : format; });
}

// `blocks.*.attention` for `blocks.3.attention`.
std::string kind_of(const std::string& scope) {
  std::string kind;
  for (size_t begin = 0; begin <= scope.size();) {
    const size_t end = std::min(scope.find('.', begin), scope.size());
    const std::string part = scope.substr(begin, end - begin);
    const bool is_number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    kind += (begin == 0 ? "" : ".") + (is_number ? "*" : part);
    begin = end + 1;
  }
  return kind;
}

// In the order of the first of each; whole scopes last, because bisection prefers what is first.
template <typename Key>
Groups grouped(std::vector<Keep> candidates, const Key& key) {
  std::stable_partition(candidates.begin(), candidates.end(),
                        [](const Keep& keep) { return !keep.operation.empty(); });
  Groups groups;
  std::map<Keep, size_t> index;
  for (const Keep& candidate : candidates) {
    const auto [found, is_new] = index.emplace(key(candidate), groups.size());
    if (is_new) {
      groups.emplace_back();
    }
    groups[found->second].push_back(candidate);
  }
  return groups;
}

std::vector<Keep> flat(const Groups& groups) {
  std::vector<Keep> result;
  for (const Group& group : groups) {
    result.insert(result.end(), group.begin(), group.end());
  }
  return result;
}

Groups joined(Groups a, const Groups& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The trials of one recommendation.
class Trials {
 public:
  using Healthy = std::function<bool(const amp::Policy&)>;

  Trials(const amp::Policy& policy, const Healthy& healthy, int most)
      : policy_(policy), healthy_(healthy), most_(most) {}

  bool is_healthy(const amp::Policy& policy) {
    const auto known = answers_.find(policy);
    if (known != answers_.end()) {
      return known->second;
    }
    const bool answer = ask(healthy_, policy);
    answers_.emplace(policy, answer);
    return answer;
  }

  bool ask(const Healthy& healthy, const amp::Policy& policy) {
    ++count_;
    thrown_.clear();
    try {
      return healthy(policy);
    } catch (const std::exception& error) {
      thrown_ = error.what();
      return false;
    }
  }

  /// A smallest part of `groups`, which are enough together, that is enough. Where trials run out
  /// more is kept than needed.
  Groups smallest(const Groups& groups) { return smallest({}, false, groups); }

  int count() const { return count_; }
  bool ran_out() const { return ran_out_; }
  const std::string& thrown() const { return thrown_; }  // by the last that threw

 private:
  // `is_open`: it is not known whether the background is enough.
  Groups smallest(const Groups& background, bool is_open, const Groups& groups) {
    if (is_open && suffices(background)) {
      return {};
    }
    if (groups.size() <= 1) {
      return groups;
    }
    const auto middle = groups.begin() + static_cast<int64_t>(groups.size() / 2);
    const Groups first(groups.begin(), middle);
    const Groups second(middle, groups.end());
    const Groups of_second = smallest(joined(background, first), true, second);
    const Groups of_first = smallest(joined(background, of_second), !of_second.empty(), first);
    return joined(of_first, of_second);
  }

  bool suffices(const Groups& groups) {
    const amp::Policy policy = with_kept(policy_, flat(groups));
    if (count_ >= most_ - kReserved && !answers_.contains(policy)) {
      ran_out_ = true;
      return false;
    }
    return is_healthy(policy);
  }

  const amp::Policy& policy_;
  const Healthy& healthy_;
  int most_;
  int count_ = 0;
  bool ran_out_ = false;
  std::string thrown_;
  std::map<amp::Policy, bool> answers_;
};

// All of `blocks.0.attention`, `blocks.1.attention`, ... as one glob.
std::vector<Keep> in_short(const std::vector<Keep>& keep, const std::vector<Keep>& candidates) {
  const auto num_alike = [](const std::vector<Keep>& all, const Keep& kind) {
    return std::count_if(all.begin(), all.end(), [&](const Keep& one) {
      return Keep{kind_of(one.scope), one.operation} == kind;
    });
  };
  std::vector<Keep> result;
  for (const Keep& one : keep) {
    const Keep kind = {kind_of(one.scope), one.operation};
    const auto kept = num_alike(keep, kind);
    const Keep shortened = kept > 1 && kept == num_alike(candidates, kind) ? kind : one;
    if (std::find(result.begin(), result.end(), shortened) == result.end()) {
      result.push_back(shortened);
    }
  }
  return result;
}

std::string list_of(const std::vector<Keep>& keep) {
  std::string text;
  for (const Keep& one : keep) {
    text += concat(text.empty() ? "" : ", ", to_string(one));
  }
  return text;
}

// From coarse to fine: over kinds of scopes, operations in those, single scopes. `candidates` are
// enough together.
std::vector<Keep> bisect(Trials& trials, const std::vector<Keep>& candidates) {
  using Key = Keep (*)(const Keep&);
  const std::initializer_list<Key> keys = {[](const Keep& keep) {
                                             return Keep{kind_of(keep.scope), ""};
                                           },
                                           [](const Keep& keep) {
                                             return Keep{kind_of(keep.scope), keep.operation};
                                           },
                                           [](const Keep& keep) { return keep; }};
  std::vector<Keep> kept = candidates;
  size_t num_groups = 1;
  for (const Key key : keys) {
    const Groups groups = grouped(kept, key);
    if (groups.size() > num_groups) {
      const Groups smallest = trials.smallest(groups);
      num_groups = smallest.size();
      kept = flat(smallest);
    }
  }
  return kept;
}

void recommend_keep(Trials& trials, const amp::Policy& policy, const std::vector<Keep>& candidates,
                    Recommendation& result) {
  result.curable = Curable::by_policy;
  if (candidates.empty() || !trials.is_healthy(with_kept(policy, candidates))) {
    result.keep = {{"", ""}};
    result.policy = with_kept(policy, result.keep);
    if (trials.is_healthy(result.policy)) {
      result.why = concat("well with all in FP32",
                          candidates.empty() ? ""
                                             : concat(", and not with the ", candidates.size(),
                                                      " candidates in FP32 alone"));
      return;
    }
    result.keep.insert(result.keep.end(), candidates.begin(), candidates.end());
    result.policy = with_kept(policy, result.keep);
    result.why = concat("well with all in FP32, and the ", candidates.size(),
                        " candidates by rules of their own, and not with either alone");
    return;
  }
  const std::vector<Keep> kept = bisect(trials, candidates);
  for (const std::vector<Keep>& keep : {in_short(kept, candidates), kept, candidates}) {
    result.keep = keep;
    result.policy = with_kept(policy, keep);
    if (trials.is_healthy(result.policy)) {
      break;
    }
  }
  result.why = concat("well with FP32 for ", list_of(result.keep));
  if (trials.ran_out()) {
    result.why += concat("; ", trials.count(), " trials were too few to show that less will do");
  } else {
    result.why += result.keep.size() > 1 ? "; fails without any one of them" : "; fails without it";
  }
}

}  // namespace

std::string_view to_string(Curable curable) {
  switch (curable) {
    case Curable::healthy:
      return "healthy";
    case Curable::by_scale:
      return "by_scale";
    case Curable::by_range:
      return "by_range";
    case Curable::by_policy:
      return "by_policy";
    case Curable::not_by_precision:
      return "not_by_precision";
  }
  MANTISSA_ASSERT(false);
}

Recommendation recommend(const amp::Policy& policy, const std::vector<Keep>& candidates,
                         const std::function<bool(const amp::Policy&)>& healthy,
                         const RecommendOptions& options) {
  MANTISSA_CHECK(options.max_trials >= kLeastTrials, InvalidArgument, "recommend: max_trials is ",
                 options.max_trials, "; pass ", kLeastTrials, " or more");
  // Refuses what no policy can hold before anything runs.
  (void)amp::resolved_rules(with_kept(policy, candidates));
  Trials trials(policy, healthy, options.max_trials);
  Recommendation result;
  result.policy = policy;
  const auto done = [&](Curable curable, const std::string& why) {
    result.curable = curable;
    result.why = why;
    result.trials = trials.count();
    return result;
  };
  if (trials.is_healthy(policy)) {
    return done(Curable::healthy, "well as it is");
  }
  if (!options.only_policy && options.healthy_scaled &&
      trials.ask(options.healthy_scaled, policy)) {
    return done(Curable::by_scale, "well with a loss scale, under the same policy");
  }
  if (const amp::Policy wide = with_range(policy);
      !options.only_policy && wide != policy && trials.is_healthy(wide)) {
    result.policy = wide;
    return done(Curable::by_range,
                "well in bf16: the numbers need the range of FP32, not its precision");
  }
  std::vector<Keep> all = {{"", ""}};
  all.insert(all.end(), candidates.begin(), candidates.end());
  if (!trials.is_healthy(with_kept(policy, {{"", ""}})) &&
      !trials.is_healthy(with_kept(policy, all))) {
    const std::string& thrown = trials.thrown();
    return done(Curable::not_by_precision,
                concat("fails with all in FP32 too: the cause is not the policy's precision, but "
                       "the model, its data, the rate, or a cast in its code",
                       thrown.empty() ? "" : concat("; it threw: ", thrown)));
  }
  recommend_keep(trials, policy, candidates, result);
  result.trials = trials.count();
  return result;
}

}  // namespace mantissa::train
