#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/json_number.h"
#include "mantissa/cli/command.h"
#include "mantissa/cli/diagnosis.h"
#include "mantissa/cli/prepare.h"
#include "mantissa/cli/settings.h"
#include "mantissa/monitor/ranges.h"
#include "mantissa/record/tensorboard.h"
#include "mantissa/record/writer.h"
#include "mantissa/report/quantity.h"
#include "mantissa/report/text_table.h"
#include "mantissa/train/inspect_run.h"

namespace mantissa::cli {
namespace {

using monitor::Range;
using nlohmann::ordered_json;
using numerics::Format;

constexpr int64_t kRows = 12;
constexpr int64_t kTwinRows = 40;

struct Options {
  std::string run_file;
  std::string checkpoint;
  std::string out;
  int64_t steps = 4;
  std::optional<int64_t> rows;
  std::optional<std::string> format;
  std::optional<std::string> emulate;
  std::optional<std::string> precision;
  std::optional<std::string> policy;
  std::vector<std::string> settings;
  std::string recommend;
  bool twin = false;
  bool blame = false;
  bool json = false;
};

// The record of an inspection, and its histograms for TensorBoard, in a folder without a run.
class RangeFiles {
 public:
  explicit RangeFiles(const std::filesystem::path& folder) : record_(created(folder)) {
    tensorboard_.emplace(folder / "events.out.tfevents.mantissa", now_s());
  }

  void write(const record::Event& event) {
    const record::Entry entry{now_s(), event};
    record_.append(entry);
    tensorboard_->append(entry);
  }

 private:
  static record::Writer created(const std::filesystem::path& folder) {
    create_folders(folder);
    MANTISSA_CHECK(!path_exists(folder / "run.toml"), InvalidArgument, folder.string(),
                   ": holds a run, whose record stays as it is; choose another --out");
    return record::Writer::create(folder / "record.jsonl");
  }

  static double now_s() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  record::Writer record_;
  std::optional<record::TensorBoardWriter> tensorboard_;
};

std::string decimal(double value) {
  return std::isfinite(value) ? report::decimal_text(value, 1) : "-";
}

std::string percent(double share) {
  return share == 0 ? "0" : share < 0.0005 ? "<0.1 %" : report::decimal_text(100 * share, 1) + " %";
}

std::string significant(double value) {
  std::ostringstream out;
  out.precision(3);
  out << value;
  return out.str();
}

// An emulation stands in the place of casts to 16 bits: for fp8 to fp16, unless bf16 was asked for.
train::RunConfig load(const Options& options) {
  std::optional<std::string> precision = options.precision;
  if (options.emulate && !precision) {
    precision = options.emulate == "bf16" ? "bf16" : "fp16";
  }
  return train::load_run_config(
      options.run_file, settings_of(options.settings, {{"precision.compute", precision},
                                                       {"precision.policy", options.policy}}));
}

// By which rows are sorted and advised: where the question is.
Format format_of(const Options& options, const train::RunConfig& config) {
  const std::string& of_run = config.precision.compute;
  const std::string name = options.format.value_or(
      options.emulate.value_or(of_run == "bf16" || of_run == "fp16" ? of_run : "fp16"));
  const Format format = numerics::parse_format(name);
  (void)numerics::ExponentHistogram().in(format);  // refuses others
  return format;
}

ordered_json json_of(const Range& range, Format format) {
  const numerics::ExponentHistogram& values = range.values;
  const numerics::NarrowCounts& counts = values.in(format);
  const double headroom = numerics::headroom_bits(values, format);
  return {{"headroom_bits", std::isfinite(headroom) ? ordered_json(headroom) : ordered_json()},
          {"zero", monitor::share(range, counts.zero)},
          {"subnormal", monitor::share(range, counts.subnormal)},
          {"overflow", monitor::share(range, counts.overflow)},
          {"near_overflow",
           monitor::share(range, numerics::num_near_overflow(values, format, monitor::kNearBits))},
          {"verdict", std::string(to_string(monitor::judge(range, format)))},
          {"advice", monitor::advice(range, format)}};
}

ordered_json json_of(const Range& range) {
  const numerics::ExponentHistogram& values = range.values;
  ordered_json json = {{"kind", std::string(to_string(range.kind))},
                       {"scope", range.scope},
                       {"name", range.name},
                       {"format", range.format},
                       {"count", values.count},
                       {"zeros", values.zeros},
                       {"nan", values.nan},
                       {"positive_infinity", values.positive_infinity},
                       {"negative_infinity", values.negative_infinity},
                       {"smallest", values.smallest},
                       {"largest", values.largest}};
  for (const Format format : numerics::kNarrowFormats) {
    json["formats"][std::string(numerics::to_string(format))] = json_of(range, format);
  }
  return json;
}

ordered_json json_of(const train::InspectedStep& step) {
  ordered_json json = {{"step", step.step},     {"loss", json_number(step.loss)},
                       {"scale", step.scale},   {"skipped", step.skipped},
                       {"time_s", step.time_s}, {"look_s", step.look_s}};
  if (!step.origin.operation.empty()) {
    json["first_nonfinite"] = {{"value", json_number(step.origin.value)},
                               {"operation", step.origin.operation},
                               {"within", step.origin.within},
                               {"scope", step.origin.scope},
                               {"in_backward", step.origin.in_backward}};
  }
  return json;
}

void print_json(const train::Inspection& inspection, Format format, const std::string& record) {
  ordered_json json;
  json["format"] = std::string(numerics::to_string(format));
  json["looked_at"] = inspection.looked_at;
  json["steps"] = ordered_json::array();
  for (const train::InspectedStep& step : inspection.steps) {
    json["steps"].push_back(json_of(step));
  }
  json["ranges"] = ordered_json::array();
  for (const Range& range : monitor::worst_first(inspection.ranges.all(), format)) {
    json["ranges"].push_back(json_of(range));
  }
  json["record"] = record;
  std::cout << json.dump() << "\n";
}

std::string describe(const train::InspectedStep& step) {
  return concat("step ", step.step, step.skipped ? " (skipped)" : "",
                ": the first value that is not finite is ", monitor::describe(step.origin),
                step.scale == 1 ? "" : concat(", loss scale ", report::scale_text(step.scale)),
                "\n");
}

// Of a run in `format`: what it keeps in another one is safe there.
bool is_elsewhere(const Range& range, Format format, bool runs_in_format) {
  return runs_in_format && range.format != numerics::to_string(format) &&
         range.values.num_nonfinite() == 0;
}

std::string remark(const Range& range, Format format, bool runs_in_format) {
  const std::string verdict(to_string(monitor::judge(range, format)));
  if (is_elsewhere(range, format, runs_in_format)) {
    return monitor::judge(range, format) == monitor::Verdict::fits
               ? verdict
               : concat("fine in ", range.format, " (", verdict, " in ",
                        numerics::to_string(format), ")");
  }
  const std::string remedy = monitor::advice(range, format);
  return concat(verdict, remedy.empty() ? "" : ": ", remedy);
}

// One row a scope, kind and format; of all values, but for the name, which is that of the largest.
void print_table(std::vector<Range> ranges, Format format, bool runs_in_format, size_t most) {
  std::stable_partition(ranges.begin(), ranges.end(), [&](const Range& range) {
    return !is_elsewhere(range, format, runs_in_format);
  });
  std::vector<std::vector<std::string>> rows = {
      {"scope", "kind", "values", "largest in", "largest", "bf16", "fp16", "e4m3", "e5m2",
       "0 in fp16", "0 in e4m3", "0 in e5m2", concat("in ", numerics::to_string(format))}};
  for (size_t i = 0; i < std::min(most, ranges.size()); ++i) {
    const Range& range = ranges[i];
    std::vector<std::string> row = {range.scope.empty() ? "-" : range.scope,
                                    std::string(to_string(range.kind)), range.format, range.name,
                                    significant(range.values.largest)};
    for (const Format each : numerics::kNarrowFormats) {
      row.push_back(decimal(numerics::headroom_bits(range.values, each)));
    }
    for (const Format each : {Format::fp16, Format::fp8_e4m3, Format::fp8_e5m2}) {
      row.push_back(percent(monitor::share(range, range.values.in(each).zero)));
    }
    row.push_back(remark(range, format, runs_in_format));
    rows.push_back(std::move(row));
  }
  std::cout << report::text_table(
      rows, {true, true, true, true, false, false, false, false, false, false, false, false, true});
  if (ranges.size() > most) {
    std::cout << ranges.size() - most << " more rows have more room; --rows " << ranges.size()
              << " shows all\n";
  }
}

void print(const train::Inspection& inspection, const train::RunConfig& config,
           std::optional<Format> emulated, Format format, size_t most) {
  const train::InspectedStep& first = inspection.steps.front();
  const train::InspectedStep& last = inspection.steps.back();
  const int64_t from = last.step - inspection.looked_at + 1;
  std::cout << (from == last.step ? concat("step ", from)
                                  : concat("steps ", from, " to ", last.step))
            << " in "
            << (emulated ? concat("emulated ", numerics::to_string(*emulated))
                         : config.precision.compute)
            << ", policy " << config.precision.policy << ", loss " << significant(first.loss)
            << " to " << significant(last.loss) << ", loss scale " << report::scale_text(last.scale)
            << "\n";
  for (const train::InspectedStep& step : inspection.steps) {
    if (!step.origin.operation.empty()) {
      std::cout << describe(step);
    }
  }
  std::cout << "Bits between the largest value and the largest number of each format (below 0 it "
               "overflows),\nand the share of values other than 0 that the format makes 0:\n\n";
  print_table(monitor::worst_first(monitor::by_scope(inspection.ranges.all()), format), format,
              !emulated && config.precision.compute == numerics::to_string(format), most);
}

// runs/<name of the run file>-<precision>-inspect, the first of -2, -3, ... that is free.
std::filesystem::path default_folder(const std::string& run_file, const std::string& precision) {
  const std::string base =
      std::filesystem::path("runs") /
      concat(std::filesystem::path(run_file).stem().string(), "-", precision, "-inspect");
  std::filesystem::path folder = base;
  for (int i = 2; std::filesystem::exists(folder); ++i) {
    folder = concat(base, "-", i);
  }
  return folder;
}

// What needs no histograms.
std::optional<int> diagnose(const Options& options, const train::RunConfig& config) {
  const train::NextStepsOptions next{.steps = options.steps, .checkpoint = options.checkpoint};
  if (options.twin) {
    return inspect_twin(config, next, static_cast<size_t>(options.rows.value_or(kTwinRows)),
                        options.json);
  }
  if (options.blame) {
    return inspect_blame(config, next, options.json);
  }
  if (!options.recommend.empty()) {
    return inspect_recommend(config, next, options.recommend, options.json);
  }
  return std::nullopt;
}

void run_inspect(const Options& options, int& exit_code) {
  const train::RunConfig config = load(options);
  const Format format = format_of(options, config);
  prepare_process();
  if (const auto code = diagnose(options, config)) {
    exit_code = *code;
    return;
  }
  const std::filesystem::path folder =
      options.out.empty() ? default_folder(options.run_file, config.precision.compute)
                          : std::filesystem::path(options.out);
  std::optional<RangeFiles> files;
  train::InspectOptions inspect{.steps = options.steps, .checkpoint = options.checkpoint};
  if (options.emulate) {
    inspect.emulate = numerics::parse_format(*options.emulate);
  }
  inspect.observe = [&](const record::Event& event) {
    if (!files) {
      files.emplace(folder);  // with the first event, so that a refused run leaves no folder
    }
    files->write(event);
  };
  const train::Inspection inspection = train::inspect_run(config, inspect);
  const std::string record = (folder / "record.jsonl").string();
  if (options.json) {
    print_json(inspection, format, record);
    return;
  }
  print(inspection, config, inspect.emulate, format,
        static_cast<size_t>(options.rows.value_or(kRows)));
  std::cout << "\nrecord " << record << "; draw it: mantissa report " << folder.string()
            << " -o inspect.html\n";
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "inspect", "How near every value of a run is to overflow and underflow, by layer and format");
  command->add_option("RUN.toml", options->run_file, "the run file")->required();
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "begin there: the folder of a run (its newest checkpoint) or of one checkpoint")
      ->check(refuse_empty_folder);
  command->add_option("--steps", options->steps, "steps to look at (default: 4)")
      ->check(CLI::PositiveNumber);
  command->add_option("--precision", options->precision, "fp32, tf32, bf16 or fp16");
  command->add_option("--policy", options->policy, "a policy's name or file");
  command->add_option("--set", options->settings, "KEY=VALUE, any key of the run file; repeatable")
      ->allow_extra_args(false);
  CLI::Option* emulate = command->add_option(
      "--emulate", options->emulate,
      "round to bf16, fp16, fp8_e4m3 or fp8_e5m2 where the policy casts, in FP32 "
      "storage: what that format would do, on any device");
  CLI::Option* format =
      command->add_option("--format", options->format,
                          "by which rows are sorted and advised: bf16, fp16, fp8_e4m3 or fp8_e5m2 "
                          "(default: that of the run if it has 16 bits, else fp16)");
  CLI::Option* rows =
      command->add_option("--rows", options->rows, "of the table (default: 12; of --twin 40)")
          ->check(CLI::PositiveNumber);
  CLI::Option* out =
      command
          ->add_option("--out", options->out,
                       "new folder of the record (default: runs/NAME-PRECISION-inspect)")
          ->check(refuse_empty_folder);
  // Each in the place of counting values.
  CLI::Option* twin = command->add_flag("--twin", options->twin,
                                        "compare the last of the steps with FP32, layer by layer");
  CLI::Option* blame = command->add_flag(
      "--blame", options->blame,
      "say why a step fails, which gradients die and which updates are lost; exit code 1 if any");
  CLI::Option* recommend =
      command
          ->add_option("--recommend", options->recommend,
                       "find the fewest operations to keep in FP32 for the steps to be well, write "
                       "them to this policy file and show that it cures; exit code 1 if none do")
          ->check(refuse_empty_folder);
  twin->excludes(blame, recommend, emulate, format, out);
  blame->excludes(recommend, emulate, format, out, rows);
  recommend->excludes(emulate, format, out, rows);
  command->add_flag("--json", options->json, "all of it as one JSON object, the last line");
  command->footer(
      "Trains the steps and counts every value in them: what each operation returns, gradients,\n"
      "weights and updates. What a format would do is counted, not estimated. Examples:\n"
      "  mantissa inspect recipes/lambda.toml --precision fp16\n"
      "  mantissa inspect recipes/lambda.toml --checkpoint runs/lambda-fp32 --format fp8_e4m3\n"
      "  mantissa inspect recipes/lambda.toml --precision bf16 --twin\n"
      "  mantissa inspect broken.toml --precision fp16 --recommend cure.toml");
  command->callback([options, &exit_code] { run_inspect(*options, exit_code); });
}

}  // namespace mantissa::cli
