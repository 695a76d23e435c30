#include "mantissa/cli/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <sstream>
#include <vector>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/json_number.h"
#include "mantissa/cli/command.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/text_table.h"
#include "mantissa/train/recommend_run.h"
#include "mantissa/train/run_health.h"
#include "mantissa/train/twin_run.h"

namespace mantissa::cli {
namespace {

using monitor::TwinRow;
using nlohmann::ordered_json;

ordered_json number(const std::optional<double>& value) {
  return value ? json_number(*value) : ordered_json();
}

std::string significant(double value) {
  std::ostringstream out;
  out.precision(2);
  out << value;
  return out.str();
}

std::string significant(const std::optional<double>& value) {
  return value ? significant(*value) : "-";
}

std::string scope_of(const TwinRow& row) { return row.scope.empty() ? "-" : row.scope; }

ordered_json json_of(const TwinRow& row) {
  return {{"place", std::string(to_string(row.place))},
          {"scope", row.scope},
          {"operation", row.operation},
          {"format", row.format},
          {"relative_error", number(row.relative_error)},
          {"cosine", number(row.cosine)},
          {"mean_ulps", number(row.mean_ulps)},
          {"max_ulps", number(row.max_ulps)},
          {"zeros", row.zeros},
          {"nonfinite", row.nonfinite},
          {"input_error", number(row.input_error)},
          {"own_error", number(row.own_error)},
          {"bound", number(row.bound)}};
}

ordered_json json_of(const train::TwinRun& twin) {
  ordered_json json = {{"step", twin.step},
                       {"scale", twin.scale},
                       {"policy", twin.policy},
                       {"unmatched", twin.report.unmatched}};
  json["first_divergence"] = ordered_json();
  if (const auto& first = twin.report.first) {
    json["first_divergence"] = {
        {"row", first->row}, {"kind", std::string(to_string(first->kind))}, {"why", first->why}};
  }
  json["rows"] = ordered_json::array();
  for (const TwinRow& row : twin.report.rows) {
    json["rows"].push_back(json_of(row));
  }
  return json;
}

// Of each place and scope the row with the largest error, in the order of the step.
std::vector<TwinRow> by_scope(const std::vector<TwinRow>& rows) {
  std::vector<TwinRow> result;
  for (const TwinRow& row : rows) {
    const auto same = std::find_if(result.begin(), result.end(), [&](const TwinRow& other) {
      return other.place == row.place && other.scope == row.scope &&
             row.place != monitor::TwinPlace::parameter;
    });
    if (same == result.end()) {
      result.push_back(row);
    } else if (row.relative_error > same->relative_error) {
      *same = row;
    }
  }
  return result;
}

void print(const train::TwinRun& twin, size_t most) {
  const std::vector<TwinRow> rows = by_scope(twin.report.rows);
  std::cout << "step " << twin.step << " beside its FP32 twin: policy " << twin.policy
            << ", loss scale " << report::scale_text(twin.scale) << "\n";
  if (const auto& first = twin.report.first) {
    const TwinRow& row = twin.report.rows[first->row];
    std::cout << "first to diverge: " << to_string(row.place) << " of " << row.operation
              << (row.scope.empty() ? "" : " in ") << row.scope << ": " << first->why << "\n";
  } else {
    std::cout << "no value diverges\n";
  }
  std::cout << "Of each layer that with the largest relative error (L2):\n\n";
  std::vector<std::vector<std::string>> table = {{"", "scope", "operation", "in", "error",
                                                  "of inputs", "its own", "explained", "1 - cos",
                                                  "ulps", "most", "0"}};
  for (size_t i = 0; i < std::min(most, rows.size()); ++i) {
    const TwinRow& row = rows[i];
    table.push_back({std::string(to_string(row.place)), scope_of(row), row.operation, row.format,
                     significant(row.relative_error), significant(row.input_error),
                     significant(row.own_error), significant(row.bound),
                     significant(std::max(0.0, 1 - row.cosine)), significant(row.mean_ulps),
                     significant(row.max_ulps),
                     row.zeros == 0 ? "0" : significant(100 * row.zeros) + " %"});
  }
  std::cout << report::text_table(table, {true, true, true, true});
  if (rows.size() > most) {
    std::cout << rows.size() - most << " more; --rows " << rows.size() << " shows all\n";
  }
}

ordered_json json_of(const monitor::OriginInput& input) {
  return {{"name", input.name},
          {"format", input.format},
          {"value", number(input.value)},
          {"at_place", input.is_at_place},
          {"operation", input.operation},
          {"scope", input.scope},
          {"in_backward", input.in_backward},
          {"parameter", input.parameter}};
}

ordered_json json_of(const train::FailedStep& failed) {
  ordered_json json = {{"step", failed.step},
                       {"loss", number(failed.report.loss)},
                       {"scale", failed.report.scale},
                       {"why", failed.why}};
  if (failed.report.skip) {
    const monitor::SkipReason& reason = failed.report.skip->reason;
    const monitor::NonfiniteOrigin& origin = reason.origin;
    json["cause"] = std::string(to_string(reason.cause));
    json["value"] = number(origin.value);
    json["operation"] = origin.operation;
    json["within"] = origin.within;
    json["format"] = origin.format;
    json["scope"] = origin.scope;
    json["in_backward"] = origin.in_backward;
    json["parameter"] = reason.parameter;
    json["inputs"] = ordered_json::array();
    for (const monitor::OriginInput& input : origin.inputs) {
      json["inputs"].push_back(json_of(input));
    }
    json["bases"] = failed.bases;
  }
  return json;
}

ordered_json json_of(const train::RunHealth& health) {
  ordered_json json = {{"ailment", std::string(to_string(health.ailment))},
                       {"steps", health.steps},
                       {"scale", health.scale}};
  json["failed"] = health.failed ? json_of(*health.failed) : ordered_json();
  json["dead"] = ordered_json::array();
  for (const TwinRow& row : health.dead) {
    json["dead"].push_back({{"parameter", row.operation}, {"zeros", row.zeros}});
  }
  json["lost"] = ordered_json::array();
  for (const optim::LostUpdates& lost : health.lost) {
    json["lost"].push_back({{"parameter", lost.parameter}, {"share", lost.share}});
  }
  return json;
}

ordered_json json_of(const train::Recommendation& cure) {
  ordered_json json = {{"curable", std::string(to_string(cure.curable))},
                       {"why", cure.why},
                       {"trials", cure.trials},
                       {"policy", to_string(cure.policy)},
                       {"keep", ordered_json::array()}};
  for (const train::Keep& keep : cure.keep) {
    json["keep"].push_back({{"scope", keep.scope}, {"operation", keep.operation}});
  }
  return json;
}

// The way to have it, for a cure that is no policy.
std::string advice(const train::Recommendation& cure) {
  switch (cure.curable) {
    case train::Curable::by_scale:
      return "cheapest cure: --set scale.kind=dynamic --set scale.initial=65536";
    case train::Curable::by_range:
      return "cheapest cure: --precision bf16";
    case train::Curable::by_policy:
      return "cure";
    case train::Curable::healthy:
    case train::Curable::not_by_precision:
      return "nothing to keep in FP32";
  }
  MANTISSA_ASSERT(false);
}

void print(const train::RunRecommendation& cure) {
  for (const std::string& line : describe(cure.health)) {
    std::cout << line << "\n";
  }
  std::cout << advice(cure.cheapest) << ": " << cure.cheapest.why << " (" << cure.cheapest.trials
            << " trials)\n";
  if (cure.kept) {
    std::cout << "in the format of the run: " << cure.kept->why << " (" << cure.kept->trials
              << " trials)\n";
  }
}

}  // namespace

int inspect_twin(const train::RunConfig& config, const train::NextStepsOptions& options,
                 size_t most, bool as_json) {
  const train::TwinRun twin = train::inspect_twin(config, options);
  if (as_json) {
    std::cout << json_of(twin).dump() << "\n";
  } else {
    print(twin, most);
  }
  return kDone;
}

int inspect_blame(const train::RunConfig& config, const train::NextStepsOptions& options,
                  bool as_json) {
  const train::RunHealth health = train::examine_run(config, options);
  if (as_json) {
    std::cout << json_of(health).dump() << "\n";
  } else {
    for (const std::string& line : describe(health)) {
      std::cout << line << "\n";
    }
  }
  return health.ailment == train::Ailment::none ? kDone : kFailed;
}

int inspect_recommend(const train::RunConfig& config, const train::NextStepsOptions& options,
                      const std::filesystem::path& file, bool as_json) {
  const train::RunRecommendation cure = train::recommend_for_run(config, options);
  const auto text = train::policy_file(config, cure);
  std::optional<train::RunHealth> shown;
  if (text) {
    replace_file(file, *text);
    amp::Policy policy = amp::find_policy(std::filesystem::absolute(file).string());
    shown = train::examine_run(train::with_policy(config, policy), options);
  }
  const bool is_shown = shown && (shown->ailment == train::Ailment::none ||
                                  shown->ailment == train::Ailment::lost_updates);
  MANTISSA_CHECK(!shown || is_shown, Error, "inspect: the steps fail under ", file.string(),
                 " too: ", shown ? describe(*shown)[0] : "",
                 "; a step that is not the same each time cannot be bisected");
  if (as_json) {
    ordered_json json = {{"health", json_of(cure.health)}, {"cheapest", json_of(cure.cheapest)}};
    json["kept"] = cure.kept ? json_of(*cure.kept) : ordered_json();
    json["file"] = text ? ordered_json(file.string()) : ordered_json();
    json["shown_steps"] = shown ? shown->steps : 0;
    std::cout << json.dump() << "\n";
  } else {
    print(cure);
    if (text) {
      std::cout << "wrote " << file.string() << "; with --policy " << file.string() << " "
                << shown->steps << " of " << options.steps << " steps are well\n";
    }
  }
  return cure.cheapest.curable == train::Curable::not_by_precision ? kFailed : kDone;
}

}  // namespace mantissa::cli
