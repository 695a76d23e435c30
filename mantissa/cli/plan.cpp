#include <algorithm>
#include <charconv>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/name_list.h"
#include "mantissa/cli/command.h"
#include "mantissa/cli/plan_report.h"
#include "mantissa/cli/prepare.h"
#include "mantissa/cli/settings.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/text_table.h"

namespace mantissa::cli {
namespace {

struct Options {
  std::string run_file;
  int64_t ranks = 1;
  std::vector<std::string> zero;
  std::vector<std::string> devices;
  std::string device_memory;
  std::string devices_file;
  double utilization = 0.4;
  std::optional<std::string> precision;
  std::optional<std::string> policy;
  std::optional<std::string> microbatch;
  std::optional<std::string> recompute;
  std::vector<std::string> settings;
  bool list_devices = false;
  bool json = false;
};

std::vector<int> stages_of(const Options& options) {
  std::vector<int> stages;
  for (const std::string& text : parse_names("--zero", options.zero)) {
    MANTISSA_CHECK(text.size() == 1 && text[0] >= '0' && text[0] <= '3', InvalidArgument,
                   "plan: --zero \"", text, "\" is no stage of ZeRO; valid: 0 1 2 3");
    stages.push_back(text[0] - '0');
  }
  if (stages.empty()) {
    const auto& all = train::kZeroStages;
    stages.assign(all.begin(), options.ranks > 1 ? all.end() : all.begin() + 1);
  }
  std::sort(stages.begin(), stages.end());
  MANTISSA_CHECK(options.ranks > 1 || stages.back() == 0, InvalidArgument, "plan: --zero ",
                 stages.back(),
                 " shares out among ranks, and there is one; say how many with "
                 "--ranks");
  return stages;
}

std::vector<train::DeviceSpec> catalog(const Options& options) {
  if (options.devices_file.empty()) {
    return train::shipped_devices();
  }
  return train::parse_devices(read_file(options.devices_file), options.devices_file);
}

std::vector<PlannedDevice> devices_of(const Options& options) {
  std::vector<PlannedDevice> devices;
  std::optional<int64_t> memory;
  if (!options.device_memory.empty()) {
    memory = train::parse_bytes(options.device_memory);
    MANTISSA_CHECK(memory, InvalidArgument, "plan: --device-memory is \"", options.device_memory,
                   "\"; valid: a number and B, kB, MB, GB, TB, KiB, MiB or GiB, such as 40GiB");
  }
  const std::vector<train::DeviceSpec> known = catalog(options);
  for (const std::string& name : parse_names("--device", options.devices)) {
    PlannedDevice device;
    device.spec = train::find_device(known, name);
    device.memory_bytes = memory.value_or(static_cast<int64_t>(device.spec->memory.value));
    devices.push_back(std::move(device));
  }
  if (devices.empty() && memory) {
    devices.push_back({.spec = std::nullopt, .memory_bytes = *memory, .remedy = {}, .fits = {}});
  }
  return devices;
}

void run_list_devices(const Options& options) {
  for (const train::DeviceSpec& device : catalog(options)) {
    std::cout << device.name << (device.note.empty() ? "" : ": " + device.note) << "\n";
    std::vector<std::vector<std::string>> rows = {
        {"  memory", report::bytes_text(static_cast<int64_t>(device.memory.value)),
         device.memory.source},
        {"  bandwidth", report::bytes_text(static_cast<int64_t>(device.bandwidth.value)) + "/s",
         device.bandwidth.source}};
    for (const auto& [format, figure] : device.flops) {
      rows.push_back({concat("  ", to_string(format)),
                      report::decimal_text(figure.value * 1e-12, 1) + " TFLOPS", figure.source});
    }
    std::cout << report::text_table(rows, {true, false, true});
  }
}

std::vector<train::Setting> all_settings(const Options& options) {
  return settings_of(options.settings, {{"precision.compute", options.precision},
                                        {"precision.policy", options.policy},
                                        {"train.microbatch", options.microbatch},
                                        {"train.recompute", options.recompute}});
}

// The largest of what is asked for: "auto" is decided for the first device, or for train.memory.
void decide_microbatch(const train::Configure& configure, Plan& plan,
                       std::vector<train::Setting>& chosen) {
  if (plan.config.train.microbatch != train::kAutoMicrobatch) {
    return;
  }
  const std::optional<int64_t> memory =
      plan.devices.empty() ? plan.config.memory_bytes() : plan.devices.front().memory_bytes;
  MANTISSA_CHECK(memory, InvalidArgument,
                 "plan: train.microbatch \"auto\" needs a memory to fit into; give --device or "
                 "--device-memory, or a number with --microbatch");
  chosen.push_back(train::fitting_microbatch(configure, plan.last(), *memory));
  plan.config = configure(chosen);
  plan.chosen_microbatch =
      concat("train.microbatch auto: ", plan.config.microbatch(), " of ", plan.config.train.batch,
             " sequences a pass for ", report::bytes_text(*memory));
}

// The same run in FP32, with the FP32 state of its optimizer.
int64_t fp32_state(train::RunConfig config) {
  config.precision.compute = "fp32";
  config.precision.policy = "torch-fixed";
  config.precision.param = "fp32";
  config.optim.masters = "fp32";
  config.optim.moments = "fp32";
  return train::rank_bytes(train::footprint(config), {1, 0}).state;
}

Plan make_plan(const Options& options) {
  Plan plan;
  plan.run_file = options.run_file;
  plan.ranks = options.ranks;
  plan.stages = stages_of(options);
  plan.devices = devices_of(options);
  plan.utilization = options.utilization;
  std::vector<train::Setting> chosen;
  const train::Configure configure = [&](const std::vector<train::Setting>& more) {
    return train::load_run_config(options.run_file, train::overridden(all_settings(options), more));
  };
  plan.config = configure({});
  decide_microbatch(configure, plan, chosen);
  plan.footprint = train::footprint(plan.config);
  plan.fp32_state = fp32_state(plan.config);
  for (const int zero : plan.stages) {
    plan.bytes.push_back(train::rank_bytes(plan.footprint, {plan.ranks, zero}));
  }
  for (const char* level : {"none", "elementwise", "block", "full"}) {
    train::RunConfig config = plan.config;
    config.train.recompute = level;
    plan.recomputations.push_back(
        {level, train::rank_bytes(train::footprint(config), plan.last())});
  }
  for (PlannedDevice& device : plan.devices) {
    for (const train::RankBytes& bytes : plan.bytes) {
      device.fits.push_back(bytes.total() <= device.memory_bytes);
    }
    if (!device.fits_any()) {
      const train::Configure on_top = [&](const std::vector<train::Setting>& more) {
        return configure(train::overridden(chosen, more));
      };
      device.remedy = train::cheapest_remedy(on_top, plan.last(), device.memory_bytes);
    }
  }
  return plan;
}

void run_plan(const Options& options, int& exit_code) {
  if (options.list_devices) {
    MANTISSA_CHECK(options.run_file.empty() && !options.json, InvalidArgument,
                   "plan: --list-devices takes no run file and no --json");
    run_list_devices(options);
    return;
  }
  MANTISSA_CHECK(!options.run_file.empty(), InvalidArgument,
                 "plan: name a run file, or --list-devices");
  prepare_process();
  const Plan plan = make_plan(options);
  std::cout << (options.json ? json_of(plan) + "\n" : text_of(plan));
  const bool fits = std::any_of(plan.devices.begin(), plan.devices.end(),
                                [](const PlannedDevice& device) { return device.fits_any(); });
  exit_code = plan.devices.empty() || fits ? kDone : kGateNotMet;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "plan",
      "Say what a step of a run would take, by rank, and whether it fits, without running it");
  command->add_option("RUN.toml", options->run_file, "the run file; its genome need not be there");
  command
      ->add_option("--ranks", options->ranks, "devices that train together, each on its own data")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->add_option("--zero", options->zero,
                      "stages of ZeRO, such as 0,3: 1 shares masters and moments out among the "
                      "ranks, 2 gradients too, 3 weights too (default: all with --ranks)");
  command->add_option("--device", options->devices,
                      "V100, A100-40GB, H100, ... (--list-devices); may be repeated");
  command->add_option("--device-memory", options->device_memory,
                      "such as 40GiB: without --device, or in place of what that one has");
  command
      ->add_option("--devices", options->devices_file,
                   "a table like devices.toml in place of the built-in one, for rates of your "
                   "own")
      ->check(CLI::ExistingFile);
  command
      ->add_option("--utilization", options->utilization,
                   "share of the peak that is assumed for the longer time")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  command->add_option("--precision", options->precision, "fp32, tf32, bf16 or fp16");
  command->add_option("--policy", options->policy, "a policy's name or file");
  command->add_option("--microbatch", options->microbatch,
                      "sequences a forward pass, or auto: the most that fits the first device");
  command->add_option("--recompute", options->recompute, "none, elementwise, block or full");
  command->add_option("--set", options->settings, "KEY=VALUE, any key of the run file; repeatable")
      ->allow_extra_args(false);
  command->add_flag("--list-devices", options->list_devices,
                    "the built-in table, each number with its source");
  command->add_flag("--json", options->json, "one JSON object, the last line of stdout");
  command->footer(
      "Exit codes: 0 done, 2 wrong usage or input, 3 a memory was named (--device,\n"
      "--device-memory) and nothing that was asked for fits into it; the output then has the\n"
      "cheapest change that makes it fit.");
  command->callback([options, &exit_code] { run_plan(*options, exit_code); });
}

}  // namespace mantissa::cli
