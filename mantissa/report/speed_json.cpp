#include "mantissa/report/speed_json.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "mantissa/report/speed_verdict.h"

namespace mantissa::report {
namespace {

using nlohmann::ordered_json;

ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

}  // namespace

std::string to_json(const SpeedFacts& facts) {
  const SpeedAnswer answer = judge_speed(facts);
  ordered_json json = {{"verdict", std::string(to_string(answer.verdict))},
                       {"why", answer.why},
                       {"advice", answer.advice},
                       {"precision", facts.precision},
                       {"step_time_s", number(facts.step_s)},
                       {"data", number(facts.data)},
                       {"casts", number(facts.casts)},
                       {"optimizer", number(facts.optimizer)},
                       {"products", number(facts.products)},
                       {"in_16_bits", number(facts.in_16_bits)},
                       {"widened", number(facts.widened)},
                       {"unsupported", number(facts.unsupported)},
                       {"small_calls", number(facts.overhead)},
                       {"memory_bound", number(facts.memory_bound)},
                       {"product_gain", number(facts.product_gain)},
                       {"predicted_gain", number(facts.predicted)}};
  json["measured_gain"] = facts.measured ? ordered_json{{"value", number(facts.measured->value)},
                                                        {"low", number(facts.measured->low)},
                                                        {"high", number(facts.measured->high)}}
                                         : ordered_json();
  json["reasons"] = ordered_json::array();
  for (const ReasonShare& reason : facts.reasons) {
    json["reasons"].push_back({{"reason", reason.reason},
                               {"share", number(reason.share)},
                               {"operation", reason.operation},
                               {"detail", reason.detail}});
  }
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace mantissa::report
