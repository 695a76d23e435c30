#include "mantissa/cli/compare_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <system_error>

#include "mantissa/base/error.h"
#include "mantissa/base/name_list.h"

namespace mantissa::cli {
namespace {

// `2.50/h`
double parse_price(const std::string& text) {
  double price = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), price);
  MANTISSA_CHECK(
      error == std::errc() && std::string_view(end) == "/h" && std::isfinite(price) && price > 0,
      InvalidArgument, "--price: \"", text,
      "\" is not a price of an hour above 0; for example 2.50/h");
  return price;
}

void require_positive(const char* option, const std::optional<double>& value) {
  MANTISSA_CHECK(!value || (std::isfinite(*value) && *value > 0), InvalidArgument, option, ": ",
                 value.value_or(0), " is not a number above 0");
}

bool has_gate(const std::vector<report::Gate>& gates, report::GateKind kind) {
  return std::any_of(gates.begin(), gates.end(),
                     [&](const report::Gate& gate) { return gate.kind == kind; });
}

bool has_several_microbatches(const std::vector<Arm>& arms) {
  return std::any_of(arms.begin(), arms.end(),
                     [&](const Arm& arm) { return arm.microbatch != arms.front().microbatch; });
}

}  // namespace

void check(const CompareOptions& options, const std::vector<Arm>& arms,
           const std::vector<report::Gate>& gates) {
  const train::RunConfig& config = arms.front().config;
  constexpr int64_t kMostSeeds = 1000;
  MANTISSA_CHECK(options.seeds >= 1 && options.seeds <= kMostSeeds &&
                     config.train.seed <= std::numeric_limits<int64_t>::max() - options.seeds,
                 InvalidArgument, "--seeds: ", options.seeds, " from train.seed ",
                 config.train.seed, " on; valid: 1 to ", kMostSeeds, ", and seeds of 64 bits");
  MANTISSA_CHECK(!options.attribute || config.train.patience > 0 || has_several_microbatches(arms),
                 InvalidArgument,
                 "--attribute: splits a gain between format, microbatch and early stopping, and "
                 "these runs differ in the format alone; name two in --microbatch, such as 8,auto, "
                 "or set train.patience");
  require_positive("--margin", options.margin);
  require_positive("--target", options.target);
  require_positive("--watts", options.watts);
  const bool is_validated = !config.data.validation.empty();
  const bool has_quality_gate = has_gate(gates, report::GateKind::quality);
  MANTISSA_CHECK(is_validated || !(options.target || options.margin || has_quality_gate),
                 InvalidArgument,
                 "compare: --target, --margin and --require quality are of validation, and nothing "
                 "is held out for it; set data.validation");
  MANTISSA_CHECK(options.seeds >= 2 || !(options.margin || has_quality_gate), InvalidArgument,
                 "compare: --margin and --require quality are of a test over seeds, and one seed "
                 "is no test; use --seeds 5");
  MANTISSA_CHECK(arms.size() >= 2 || !(options.margin || !gates.empty()), InvalidArgument,
                 "compare: --margin and --require hold one precision against another, and there "
                 "is only ",
                 arms.front().name, "; name two in --precisions");
  MANTISSA_CHECK(options.target || !(has_gate(gates, report::GateKind::target) ||
                                     has_gate(gates, report::GateKind::cost)),
                 InvalidArgument, "--require: target and cost are of a target; set --target");
  MANTISSA_CHECK(!options.price.empty() || !has_gate(gates, report::GateKind::cost),
                 InvalidArgument, "--require: cost needs the price of an hour; set --price");
  MANTISSA_CHECK(!options.watts || options.powercap.empty(), InvalidArgument,
                 "compare: --watts takes the place of what --powercap measures; leave one out");
}

report::StudyOptions what_is_asked(const CompareOptions& options) {
  report::StudyOptions asked;
  asked.margin = options.margin.value_or(asked.margin);
  asked.target = options.target.value_or(asked.target);
  asked.watts = options.watts.value_or(asked.watts);
  asked.price_per_hour = options.price.empty() ? asked.price_per_hour : parse_price(options.price);
  return asked;
}

std::vector<train::DeviceSpec> devices_of(const CompareOptions& options) {
  std::vector<train::DeviceSpec> devices;
  for (const std::string& name : parse_names("--devices", options.devices)) {
    devices.push_back(train::find_device(train::shipped_devices(), name, "--devices"));
  }
  return devices;
}

}  // namespace mantissa::cli
