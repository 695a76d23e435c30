#include "mantissa/cli/plan_report.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/text_table.h"

namespace mantissa::cli {
namespace {

using nlohmann::ordered_json;
using report::bytes_text;
using report::count_text;
using report::seconds_text;

using Rows = std::vector<std::vector<std::string>>;

std::string ranks_text(int64_t ranks) { return concat(ranks, ranks == 1 ? " rank" : " ranks"); }

std::string zero_text(int zero) { return concat("ZeRO ", zero); }

double per_parameter(int64_t bytes, const Plan& plan) {
  return static_cast<double>(bytes) / static_cast<double>(plan.footprint.parameters);
}

numerics::Format compute_of(const Plan& plan) {
  return numerics::parse_format(plan.config.precision.compute);
}

std::string heading(const Plan& plan) {
  const train::RunConfig& config = plan.config;
  const auto counted = [](int64_t number, const char* what) {
    return concat(number, " ", what, number == 1 ? "" : "s");
  };
  return concat(plan.run_file, ": ", count_text(static_cast<double>(plan.footprint.parameters)),
                " parameters; a rank's step is ", counted(config.train.batch, "sequence"), " of ",
                config.data.context, " tokens in ",
                plan.footprint.passes == 1 ? "1 pass" : concat(plan.footprint.passes, " passes"),
                "; ", config.precision.compute, ", recompute ", config.train.recompute, "\n",
                plan.chosen_microbatch.empty() ? "" : plan.chosen_microbatch + "\n");
}

std::string bytes_table(const Plan& plan) {
  Rows rows = {{"bytes a rank, " + ranks_text(plan.ranks)}};
  for (const int zero : plan.stages) {
    rows[0].push_back(zero_text(zero));
  }
  const auto add = [&](const std::string& name, const auto& of) {
    std::vector<std::string> row = {name};
    bool is_there = false;
    for (const train::RankBytes& bytes : plan.bytes) {
      is_there = is_there || of(bytes) != 0;
      row.push_back(bytes_text(of(bytes)));
    }
    if (is_there) {
      rows.push_back(std::move(row));
    }
  };
  const auto names = plan.bytes.front().by_name();
  for (size_t i = 0; i < names.size(); ++i) {
    add("  " + names[i].first, [i](const auto& bytes) { return bytes.by_name()[i].second; });
  }
  add("total at the peak", [](const auto& bytes) { return bytes.total(); });
  add("of it state, with all gradients", [](const auto& bytes) { return bytes.state; });
  return report::text_table(rows);
}

std::string recomputation_table(const Plan& plan) {
  Rows rows = {{concat("--recompute, ", zero_text(plan.stages.back())), "activations", "casts",
                "temporaries", "total"}};
  for (const auto& [level, bytes] : plan.recomputations) {
    rows.push_back({concat("  ", level, level == plan.config.train.recompute ? " (the run's)" : ""),
                    bytes_text(bytes.activations), bytes_text(bytes.casts),
                    bytes_text(bytes.temporaries), bytes_text(bytes.total())});
  }
  return report::text_table(rows);
}

// What precision did to the state, and what sharding did.
std::string state_sentences(const Plan& plan) {
  const train::RankBytes whole = train::rank_bytes(plan.footprint, {1, 0});
  const double each = per_parameter(whole.state, plan);
  const double in_fp32 = per_parameter(plan.fp32_state, plan);
  std::string text = concat("State on one rank: ", bytes_text(whole.state), ", ",
                            report::decimal_text(each, 2), " bytes a parameter");
  if (plan.config.precision.compute != "fp32") {
    text += concat("; in FP32 ", bytes_text(plan.fp32_state), ", ",
                   report::decimal_text(in_fp32, 2), " bytes a parameter.\n");
    constexpr double kAlike = 0.97;
    text += each >= kAlike * in_fp32
                ? "16-bit formats do not shrink it: what weights and gradients save, FP32 masters "
                  "or weights take again. They shrink activations"
                : "It is masters and moments of fewer bits that shrink it";
  }
  text += ".\n";
  const train::RankBytes& last = plan.bytes.back();
  if (plan.ranks > 1 && last.state < whole.state) {
    text += concat("With ", zero_text(plan.stages.back()), " on ", plan.ranks, " ranks each has ",
                   bytes_text(last.state), " of it: it is sharding that does it.\n");
  }
  return text;
}

std::string fit_text(int64_t total, int64_t memory) {
  return total <= memory ? concat("fits, ", bytes_text(memory - total), " left")
                         : concat("lacks ", bytes_text(total - memory));
}

std::string time_text(const Plan& plan, const train::DeviceSpec& spec) {
  const train::StepTime time =
      train::step_time(plan.footprint, plan.last(), compute_of(plan), spec);
  return time.missing.empty() ? concat("at least ", seconds_text(time.bound_s())) : time.missing;
}

std::string device_table(const Plan& plan) {
  Rows rows = {{"device", "memory"}};
  for (const int zero : plan.stages) {
    rows[0].push_back(zero_text(zero));
  }
  const bool has_times = std::any_of(plan.devices.begin(), plan.devices.end(),
                                     [](const PlannedDevice& device) { return device.spec; });
  if (has_times) {
    rows[0].emplace_back("a step");
  }
  for (const PlannedDevice& device : plan.devices) {
    std::vector<std::string> row = {device.name(), bytes_text(device.memory_bytes)};
    for (const train::RankBytes& bytes : plan.bytes) {
      row.push_back(fit_text(bytes.total(), device.memory_bytes));
    }
    if (device.spec) {
      row.push_back(time_text(plan, *device.spec));
    }
    rows.push_back(std::move(row));
  }
  return report::text_table(rows);
}

std::string remedy_sentences(const Plan& plan) {
  std::string text;
  for (const PlannedDevice& device : plan.devices) {
    if (device.fits_any()) {
      continue;
    }
    text += concat(device.name(), ": ");
    text += device.remedy
                ? concat("the cheapest change that makes it fit: ", device.remedy->change.text,
                         " (", bytes_text(device.remedy->bytes.total()), " a rank, ",
                         bytes_text(device.memory_bytes - device.remedy->bytes.total()), " left)\n")
                : "no change known here makes it fit: a smaller model or context would\n";
  }
  return text;
}

std::string assumptions(const Plan& plan) {
  std::string text =
      "Counted: the run's own step, with shapes only, as our CPU kernels take memory; other "
      "kernels take other\ntemporaries.";
  if (plan.ranks > 1) {
    text += concat(
        " Assumed, not measured: what ranks share out, gathers of one block at a time, "
        "buckets. A rank\nsends ",
        bytes_text(static_cast<int64_t>(train::sent_bytes(plan.footprint, plan.last()))),
        " a step.");
  }
  const bool has_times = std::any_of(plan.devices.begin(), plan.devices.end(),
                                     [](const PlannedDevice& device) { return device.spec; });
  if (has_times) {
    text += concat(
        "\nTimes are bounds, not promises: products at the vendor's peak or memory at full rate, "
        "whichever is\nlonger, no communication. At an assumed utilization of ",
        std::lround(100 * plan.utilization), " % they are ",
        report::decimal_text(1 / plan.utilization, 1), " times as long.");
  }
  return text + "\n";
}

ordered_json json_of(const train::RankBytes& bytes) {
  ordered_json json;
  for (const auto& [name, size] : bytes.by_name()) {
    json[name] = size;
  }
  json["total"] = bytes.total();
  return json;
}

ordered_json json_of(const Plan& plan, const PlannedDevice& device) {
  ordered_json json = {{"name", device.name()}, {"memory_bytes", device.memory_bytes}};
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    json["fits"].push_back({{"zero", plan.stages[i]},
                            {"fits", static_cast<bool>(device.fits[i])},
                            {"left_bytes", device.memory_bytes - plan.bytes[i].total()}});
  }
  if (device.spec) {
    const train::StepTime time =
        train::step_time(plan.footprint, plan.last(), compute_of(plan), *device.spec);
    json["step_time_bound"] = {
        {"products_s", time.products_s}, {"memory_s", time.memory_s}, {"s", time.bound_s()}};
    if (!time.missing.empty()) {
      json["step_time_bound"] = nullptr;
      json["why_no_time"] = time.missing;
    }
    ordered_json sources = {{"memory", device.spec->memory.source},
                            {"bandwidth", device.spec->bandwidth.source}};
    for (const auto& [format, figure] : device.spec->flops) {
      sources[std::string(to_string(format))] = figure.source;
    }
    json["sources"] = sources;
  }
  json["remedy"] = nullptr;
  if (device.remedy) {
    json["remedy"] = {{"change", device.remedy->change.text},
                      {"ranks", device.remedy->change.sharding.ranks},
                      {"zero", device.remedy->change.sharding.zero},
                      {"bytes_per_rank", json_of(device.remedy->bytes)}};
  }
  return json;
}

}  // namespace

bool PlannedDevice::fits_any() const {
  return std::find(fits.begin(), fits.end(), true) != fits.end();
}

std::string text_of(const Plan& plan) {
  std::string text = heading(plan) + "\n" + bytes_table(plan) + "\n";
  if (plan.recomputations.size() > 1) {
    text += recomputation_table(plan) + "\n";
  }
  text += state_sentences(plan);
  if (!plan.devices.empty()) {
    text += "\n" + device_table(plan) + remedy_sentences(plan);
  }
  return text + "\n" + assumptions(plan);
}

std::string json_of(const Plan& plan) {
  ordered_json json = {{"run", plan.run_file},
                       {"parameters", plan.footprint.parameters},
                       {"precision", plan.config.precision.compute},
                       {"policy", plan.config.precision.policy},
                       {"recompute", plan.config.train.recompute},
                       {"context", plan.config.data.context},
                       {"batch", plan.config.train.batch},
                       {"microbatch", plan.config.microbatch()},
                       {"ranks", plan.ranks},
                       {"zero", plan.stages.back()},
                       {"bytes_per_rank", json_of(plan.bytes.back())}};
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    json["stages"].push_back({{"zero", plan.stages[i]},
                              {"state_bytes", plan.bytes[i].state},
                              {"bytes_per_rank", json_of(plan.bytes[i])}});
  }
  for (const auto& [level, bytes] : plan.recomputations) {
    json["recomputations"].push_back({{"recompute", level}, {"bytes_per_rank", json_of(bytes)}});
  }
  json["state_bytes"] = train::rank_bytes(plan.footprint, {1, 0}).state;
  json["fp32_state_bytes"] = plan.fp32_state;
  for (const auto& [format, flops] : plan.footprint.flops) {
    json["flops"][std::string(to_string(format))] = flops;
  }
  json["sent_bytes"] = train::sent_bytes(plan.footprint, plan.last());
  json["utilization"] = plan.utilization;
  json["devices"] = ordered_json::array();
  for (const PlannedDevice& device : plan.devices) {
    json["devices"].push_back(json_of(plan, device));
  }
  return json.dump();
}

}  // namespace mantissa::cli
