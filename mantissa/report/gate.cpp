#include "mantissa/report/gate.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "mantissa/base/error.h"
#include "mantissa/base/name_list.h"
#include "mantissa/base/nearest.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/study_text.h"

namespace mantissa::report {
namespace {

struct Kind {
  GateKind kind;
  const char* name;
  bool has_bound;
};

constexpr std::array<Kind, 5> kKinds = {{{GateKind::quality, "quality", false},
                                         {GateKind::speed, "speed", true},
                                         {GateKind::memory, "memory", true},
                                         {GateKind::target, "target", false},
                                         {GateKind::cost, "cost", true}}};

const Kind& kind_of(GateKind kind) {
  for (const Kind& each : kKinds) {
    if (each.kind == kind) {
      return each;
    }
  }
  MANTISSA_ASSERT(false);
}

const Kind& find_kind(const std::string& name) {
  std::vector<std::string> names;
  for (const Kind& each : kKinds) {
    if (each.name == name) {
      return each;
    }
    names.emplace_back(each.name);
  }
  throw InvalidArgument(concat("--require: unknown gate \"", name, "\"", suggestion(name, names)));
}

double parse_bound(const std::string& gate, const std::string& text) {
  double bound = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bound);
  MANTISSA_CHECK(
      error == std::errc() && end == text.data() + text.size() && std::isfinite(bound) && bound > 0,
      InvalidArgument, "--require: \"", gate, "=", text,
      "\": the bound is not a number above 0; for example speed=1.5");
  return bound;
}

Gate parse_gate(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const Kind& kind = find_kind(name);
  MANTISSA_CHECK(kind.has_bound == (equals != std::string::npos), InvalidArgument, "--require: \"",
                 text, "\": ", name,
                 kind.has_bound ? " needs a bound, for example " + name + "=1.5"
                                : " takes no bound; leave out what begins at the =");
  return {kind.kind, kind.has_bound ? parse_bound(name, text.substr(equals + 1)) : 0};
}

// What was measured, and whether it is enough.
GateResult judge_one(const Gate& gate, const Study& study, const ArmResult& arm) {
  GateResult result;
  result.gate = to_string(gate);
  result.arm = arm.arm;
  switch (gate.kind) {
    case GateKind::quality:
      result.is_met = quality_verdict(arm) == QualityVerdict::equivalent;
      result.measured = quality_line(study, arm);
      break;
    case GateKind::speed:
      result.is_met = arm.speed && arm.speed->low >= gate.bound;  // never without an interval
      result.measured = speed_line(study, arm);
      break;
    case GateKind::memory:
      result.is_met = arm.memory <= gate.bound;
      result.measured = memory_line(study, arm);
      break;
    case GateKind::target:
      result.is_met = arm.reached == std::ssize(arm.runs);
      result.measured = target_line(study, arm);
      break;
    case GateKind::cost:
      result.is_met = arm.target_cost <= gate.bound;
      result.measured = std::isfinite(arm.target_cost)
                            ? decimal_text(arm.target_cost, 4) + " to the target"
                            : "the target was not reached";
      break;
  }
  if (arm.failed > 0 && result.is_met) {
    result.is_met = false;
    result.measured = quality_line(study, arm);
  }
  return result;
}

}  // namespace

std::vector<Gate> parse_gates(const std::string& text) {
  std::vector<Gate> gates;
  for (const std::string& part : parse_names("--require", text)) {
    gates.push_back(parse_gate(part));
    for (size_t i = 0; i + 1 < gates.size(); ++i) {
      MANTISSA_CHECK(gates[i].kind != gates.back().kind, InvalidArgument, "--require: \"",
                     kind_of(gates[i].kind).name, "\" is named twice; name each once");
    }
  }
  return gates;
}

std::string to_string(const Gate& gate) {
  const Kind& kind = kind_of(gate.kind);
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "=%g", gate.bound);
  return concat(kind.name, kind.has_bound ? buffer.data() : "");
}

std::vector<GateResult> judge(const std::vector<Gate>& gates, const Study& study) {
  std::vector<GateResult> results;
  for (const ArmResult& arm : study.arms) {
    for (const Gate& gate : gates) {
      if (arm.arm != study.reference) {
        results.push_back(judge_one(gate, study, arm));
      }
    }
  }
  return results;
}

std::string gates_text(const std::vector<GateResult>& results) {
  std::string text;
  for (const GateResult& result : results) {
    text += concat("gate ", result.gate, ": ", result.arm, ": ",
                   result.is_met ? "met: " : "not met: ", result.measured, "\n");
  }
  return text;
}

}  // namespace mantissa::report
