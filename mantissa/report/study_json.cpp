#include "mantissa/report/study_json.h"

#include <cmath>
#include <sstream>

#include <nlohmann/json.hpp>

#include "mantissa/report/speed_json.h"
#include "mantissa/report/study_text.h"

namespace mantissa::report {
namespace {

using nlohmann::ordered_json;

ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

ordered_json numbers(const std::vector<double>& values) {
  ordered_json list = ordered_json::array();
  for (const double value : values) {
    list.push_back(number(value));
  }
  return list;
}

ordered_json json_of(const Estimate& estimate) {
  return {{"value", number(estimate.value)},
          {"low", number(estimate.low)},
          {"high", number(estimate.high)}};
}

ordered_json json_of(const Equivalence& test) {
  return {{"pairs", test.pairs},
          {"margin", test.margin},
          {"mean", test.mean},
          {"deviation", test.deviation},
          {"low", test.low},
          {"high", test.high},
          {"p_equivalent", test.p_equivalent},
          {"p_different", test.p_different},
          {"detectable", test.detectable},
          {"provable_margin", test.provable_margin}};
}

// A run begins with the keys of its summary.
ordered_json json_of(const RunResult& run) {
  ordered_json json = ordered_json::object();
  if (run.failure.empty()) {
    json = ordered_json::parse(record::to_json(run.summary));
  } else {
    json["failure"] = run.failure;
  }
  json["arm"] = run.arm;
  json["seed"] = run.seed;
  json["evaluations"] = ordered_json::array();
  for (const record::Evaluation& evaluation : run.evaluations) {
    json["evaluations"].push_back(
        {{"step", evaluation.step}, {"bits_per_base", number(evaluation.bits_per_base)}});
  }
  json["scales"] = ordered_json::array();
  for (const record::Step& step : run.scales) {
    json["scales"].push_back({{"step", step.step}, {"scale", number(step.scale)}});
  }
  json["microbatch"] = run.microbatch > 0 ? ordered_json(run.microbatch) : ordered_json();
  json["timed_steps"] = run.timed_steps;
  json["training_s"] = number(run.training_s);
  json["target_step"] = run.target_step < 0 ? ordered_json() : ordered_json(run.target_step);
  json["target_s"] = number(run.target_s);
  json["energy_j"] = number(run.energy_j);
  json["energy_steps"] = run.energy_steps;
  return json;
}

ordered_json json_of(const ArmResult& arm, const Study& study) {
  ordered_json json;
  json["arm"] = arm.arm;
  json["runs"] = arm.runs.size();
  json["failed"] = arm.failed;
  json["step_time_s"] = json_of(arm.step_s);
  json["slices"] = arm.slices;
  json["tokens_per_s"] = number(arm.tokens_per_s);
  json["peak_total"] = arm.peak_total;
  json["peak_bytes"] = arm.peak_bytes;
  json["peak_holders"] = arm.peak_holders;
  json["bits_per_base"] = number(arm.bits_per_base);
  json["reached"] = arm.reached;
  json["target_step"] = number(arm.target_step);
  json["target_s"] = number(arm.target_s);
  json["target_cost"] = number(arm.target_cost);
  json["training_s"] = number(arm.training_s);
  json["cost"] = number(arm.cost);
  json["energy_j"] = number(arm.energy_j);
  if (arm.arm == study.reference) {
    return json;
  }
  json["speed"] = arm.speed ? json_of(*arm.speed) : ordered_json();
  json["pairs"] = arm.pairs;
  json["why"] = arm.facts ? ordered_json::parse(to_json(*arm.facts)) : ordered_json();
  json["memory"] = number(arm.memory);
  json["differences"] = numbers(arm.differences);
  json["quality"] = arm.quality ? json_of(*arm.quality) : ordered_json();
  json["quality_verdict"] = to_string(quality_verdict(arm));
  return json;
}

ordered_json json_of(const Attribution& attribution) {
  ordered_json json;
  json["effects"] = ordered_json::array();
  for (const Effect& effect : attribution.effects) {
    json["effects"].push_back({{"factor", effect.factor},
                               {"text", effect.text},
                               {"speed", json_of(effect.speed)},
                               {"rounds", effect.rounds},
                               {"target", json_of(effect.target)},
                               {"seeds", effect.seeds}});
  }
  json["stopping"] = ordered_json::array();
  for (const Stopping& stopping : attribution.stopping) {
    json["stopping"].push_back({{"arm", stopping.arm},
                                {"step", number(stopping.step)},
                                {"last_step", number(stopping.last_step)},
                                {"speed", number(stopping.speed)},
                                {"difference", number(stopping.difference)}});
  }
  return json;
}

ordered_json json_of(const DeviceTime& time) {
  ordered_json json = {{"device", time.device}, {"arm", time.arm}};
  json["step_time_bound"] = {
      {"products_s", time.products_s}, {"memory_s", time.memory_s}, {"s", time.bound_s()}};
  if (!time.missing.empty()) {
    json["step_time_bound"] = nullptr;
    json["why_no_time"] = time.missing;
  }
  json["bytes"] = time.bytes;
  json["fits"] = time.fits();
  return json;
}

ordered_json lines_of(const std::string& text) {
  ordered_json lines = ordered_json::array();
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

std::string to_json(const Study& study, const std::vector<GateResult>& gates,
                    const std::string& hardware, const std::optional<Attribution>& attribution,
                    const std::vector<DeviceTime>& devices) {
  ordered_json json;
  json["schema"] = kStudySchema;
  json["hardware"] = hardware;
  json["margin"] = study.options.margin;
  json["target"] = number(study.options.target);
  json["price_per_hour"] = number(study.options.price_per_hour);
  json["watts"] = number(study.options.watts);
  json["energy_problem"] = study.options.energy_problem;
  json["energy_of"] = study.energy_of;
  json["reference"] = study.reference;
  json["seeds"] = study.seeds;
  json["training_s"] = study.training_s;
  json["arms"] = ordered_json::array();
  json["runs"] = ordered_json::array();
  for (const ArmResult& arm : study.arms) {
    json["arms"].push_back(json_of(arm, study));
    for (const RunResult& run : arm.runs) {
      json["runs"].push_back(json_of(run));
    }
  }
  json["gates"] = ordered_json::array();
  for (const GateResult& gate : gates) {
    json["gates"].push_back({{"gate", gate.gate},
                             {"arm", gate.arm},
                             {"met", gate.is_met},
                             {"measured", gate.measured}});
  }
  json["attribution"] = attribution ? json_of(*attribution) : ordered_json();
  json["devices"] = ordered_json::array();
  for (const DeviceTime& time : devices) {
    json["devices"].push_back(json_of(time));
  }
  json["verdict"] = lines_of(verdict_text(study));
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace mantissa::report
