#include "score.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <string_view>

#include <c10/util/Exception.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/lint.h"
#include "mantissa/monitor/nonfinite_origin.h"
#include "mantissa/monitor/skip_reason.h"
#include "mantissa/train/keep.h"
#include "mantissa/train/recommend.h"
#include "step.h"

namespace mantissa::nan_benchmark {
namespace {

using monitor::Finding;
using monitor::NonfiniteOrigin;
using train::Curable;

// Where a tool says that the fault is.
struct Place {
  std::string finding;
  std::string operation;
  std::string scope;
  bool in_backward = false;
  bool is_cast = false;
};

std::string to_string(const Place& place) {
  if (place.operation.empty()) {
    return "nothing";
  }
  return concat(place.finding, ": ", place.is_cast ? "a cast within " : "", place.operation, " (",
                place.in_backward ? "backward of " : "", place.scope, ")");
}

Place place_of(const NonfiniteOrigin& origin) {
  if (origin.operation.empty()) {
    return {};
  }
  const std::string& outermost = origin.within.empty() ? origin.operation : origin.within;
  const bool is_cast = !origin.in_backward && outermost != "aten::to" &&
                       (origin.operation == "aten::copy_" || origin.operation == "aten::_to_copy");
  return {origin.is_given ? "given" : "nonfinite", outermost, origin.scope, origin.in_backward,
          is_cast};
}

Place place_of(const Finding& finding) {
  return {finding.rule, finding.operation, finding.scope,
          finding.operation.find("Backward") != std::string::npos ||
              finding.operation.find("AccumulateGrad") != std::string::npos};
}

// Losses in FP16 are a hazard wherever they are, also where they are finite, and no alarm.
std::vector<Finding> hazards(const monitor::LintReport& report, const Truth& truth) {
  std::vector<Finding> found;
  for (const Finding& finding : report.findings) {
    const bool is_of_policy = finding.rule == "loss" && truth.finding != "loss";
    if (finding.severity == monitor::Severity::hazard && !is_of_policy) {
      found.push_back(finding);
    }
  }
  return found;
}

bool is_lint_rule(const std::string& finding) {
  return finding != "nonfinite" && finding != "given" && finding != "scale";
}

monitor::LintReport lint_step(Step& step, const amp::Policy& policy, double scale) {
  return monitor::lint([&] { step.run(policy, scale); }, {.parameters = step.parameters()});
}

NonfiniteOrigin origin_of(Step& step, const amp::Policy& policy, double scale) {
  return monitor::find_nonfinite_origin([&] { step.run(policy, scale); }, step.parameters());
}

Place find_place(const Case& given, const Truth& truth, const amp::Policy& policy) {
  Step step(given, /*is_faulty=*/true);
  if (is_lint_rule(truth.finding)) {
    const auto found = hazards(lint_step(step, policy, truth.scale), truth);
    return found.empty() ? Place() : place_of(found[0]);
  }
  if (truth.finding == "scale") {
    const monitor::ReplayPoint point;
    const auto reason = monitor::find_skip_reason(point, step.parameters(), truth.scale,
                                                  [&] { return step.loss(policy); });
    Place place = place_of(reason.origin);
    place.finding = monitor::to_string(reason.cause);
    return place;
  }
  return place_of(origin_of(step, policy, truth.scale));
}

bool is_exact(const Place& place, const Truth& truth) {
  return place.finding == truth.finding && place.operation == truth.operation &&
         place.scope == truth.scope && place.in_backward == (truth.pass == "backward") &&
         place.is_cast == truth.is_cast;
}

// Judged by the numbers and, of silent faults, by the rule that finds them.
bool is_well(const Case& given, const Truth& truth, const amp::Policy& policy, double scale) {
  Step step(given, /*is_faulty=*/true);
  if (is_lint_rule(truth.finding)) {
    const auto found = hazards(lint_step(step, policy, scale), truth);
    return step.is_finite() && std::none_of(found.begin(), found.end(), [&](const Finding& one) {
             return one.rule == truth.finding;
           });
  }
  return origin_of(step, policy, scale).operation.empty() && step.is_finite();
}

// As a dynamic scale would come to it.
bool is_well_at_some_scale(const Case& given, const Truth& truth, const amp::Policy& policy) {
  if (truth.pass != "backward") {
    return false;
  }
  for (double scale = 65536; scale >= 1.0 / 65536; scale /= 16) {
    if (is_well(given, truth, policy, scale)) {
      return true;
    }
  }
  return false;
}

std::string way_of(Curable curable) {
  switch (curable) {
    case Curable::by_scale:
      return "scale";
    case Curable::by_range:
      return "bf16";
    case Curable::by_policy:
      return "keep";
    case Curable::healthy:
    case Curable::not_by_precision:
      return "";
  }
  MANTISSA_ASSERT(false);
}

void recommend(const Case& given, const amp::Policy& policy, Score& score) {
  const Truth& truth = score.truth;
  Step traced(given, /*is_faulty=*/true);
  const std::vector<train::Keep> candidates = train::candidates([&] {
    try {
      traced.run(policy, truth.scale);
    } catch (const c10::Error&) {
      // A step that cannot run has the candidates that it came to.
    }
  });
  const auto healthy = [&](const amp::Policy& p) { return is_well(given, truth, p, truth.scale); };
  train::RecommendOptions options;
  options.healthy_scaled = [&](const amp::Policy& p) {
    return is_well_at_some_scale(given, truth, p);
  };
  const auto cheapest = train::recommend(policy, candidates, healthy, options);
  score.cure = cheapest.why;
  const std::string way = way_of(cheapest.curable);
  if (truth.cure.empty()) {
    score.is_cured = cheapest.curable == Curable::not_by_precision;
    return;
  }
  score.is_cured =
      truth.is_curable_by(way) &&
      (way == "scale" ? options.healthy_scaled(cheapest.policy) : healthy(cheapest.policy));
  if (!truth.is_curable_by("keep")) {
    return;
  }
  options.only_policy = true;
  const auto kept =
      way == "keep" ? cheapest : train::recommend(policy, candidates, healthy, options);
  score.cure += way == "keep" ? "" : "; " + kept.why;
  score.is_cured &= kept.curable == Curable::by_policy && healthy(kept.policy);
  score.is_minimal = score.is_cured && kept.keep.size() <= truth.keep.size() &&
                     std::all_of(kept.keep.begin(), kept.keep.end(),
                                 [](const train::Keep& keep) { return !keep.operation.empty(); });
}

std::string alarm_of(const Case& given, const Truth& truth, const amp::Policy& policy) {
  // Too large a scale is the fault itself; the twin has it too.
  Step traced(given, /*is_faulty=*/false);
  const NonfiniteOrigin origin = origin_of(traced, policy, truth.scale);
  if (!origin.operation.empty()) {
    return monitor::describe(origin);
  }
  if (!traced.is_finite()) {
    return "the twin itself is not finite";
  }
  Step linted(given, /*is_faulty=*/false);
  const auto found = hazards(lint_step(linted, policy, truth.scale), truth);
  return found.empty() ? "" : monitor::to_string(found[0]);
}

// That the case is a failure, told by its numbers alone.
std::string failure_of(const Case& given, const Truth& truth, const amp::Policy& policy) {
  if (is_lint_rule(truth.finding)) {
    return "";
  }
  Step step(given, /*is_faulty=*/true);
  step.run(policy, truth.scale);
  if (step.is_finite() == truth.is_hidden) {
    return "";
  }
  return truth.is_hidden ? "the faulty step is not finite" : "the faulty step is finite";
}

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Score score(const Case& given, const Truth& truth) {
  const amp::Policy policy = amp::parse_policy(truth.policy);
  Score score{.truth = truth};
  score.failure = failure_of(given, truth, policy);
  const Place place = find_place(given, truth, policy);
  score.named = to_string(place);
  score.is_exact = is_exact(place, truth);
  recommend(given, policy, score);
  score.alarm = alarm_of(given, truth, policy);
  Step plain(given, /*is_faulty=*/false);
  score.plain_s = seconds([&] { plain.run(policy, truth.scale); });
  Step traced(given, /*is_faulty=*/false);
  score.traced_s = seconds([&] { (void)origin_of(traced, policy, truth.scale); });
  return score;
}

Totals totals(const std::vector<Score>& scores) {
  Totals sum;
  for (const Score& score : scores) {
    ++sum.cases;
    sum.exact += score.is_exact ? 1 : 0;
    sum.curable += score.is_curable() ? 1 : 0;
    sum.cured += score.is_curable() && score.is_cured ? 1 : 0;
    sum.incurable += score.is_curable() ? 0 : 1;
    sum.said_so += !score.is_curable() && score.is_cured ? 1 : 0;
    sum.curable_by_keep += score.truth.is_curable_by("keep") ? 1 : 0;
    sum.minimal += score.is_minimal ? 1 : 0;
    sum.alarms += score.alarm.empty() ? 0 : 1;
    sum.failures += score.failure.empty() ? 0 : 1;
  }
  return sum;
}

std::vector<std::string> missed_bars(const Totals& totals) {
  std::vector<std::string> missed;
  const auto require = [&](int64_t part, int64_t all, int64_t percent, const std::string& what) {
    if (part * 100 < all * percent) {
      missed.push_back(concat(part, " of ", all, " ", what, ", less than ", percent, " %"));
    }
  };
  require(totals.exact, totals.cases, 95, "named exactly");
  require(totals.cured, totals.curable, 90, "of the curable cured");
  require(totals.said_so, totals.incurable, 90, "of the incurable said to be so");
  require(totals.minimal, totals.curable_by_keep, 90, "cured by no more operations than needed");
  if (totals.alarms > 0) {
    missed.push_back(concat(totals.alarms, " false alarms, more than none"));
  }
  if (totals.failures > 0) {
    missed.push_back(concat(totals.failures, " cases do not fail as they claim"));
  }
  return missed;
}

}  // namespace mantissa::nan_benchmark
