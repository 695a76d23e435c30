#include "mantissa/report/run.h"

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include <toml++/toml.h>

#include "mantissa/base/error.h"
#include "mantissa/record/reader.h"
#include "mantissa/report/natural_order.h"
#include "mantissa/report/statistics.h"

namespace mantissa::report {
namespace {

using std::filesystem::path;

constexpr const char* kRecord = "record.jsonl";

template <typename Value>
std::string toml_text(const Value& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

std::map<std::string, std::string> settings_of(const std::string& config) {
  std::map<std::string, std::string> settings;
  try {
    const toml::table file = toml::parse(config);
    for (const auto& [section, keys] : file) {
      if (const toml::table* table = keys.as_table()) {
        for (const auto& [key, value] : *table) {
          const auto text = value.value_exact<std::string>();
          settings[concat(section.str(), ".", key.str())] =
              text ? *text : value.visit([](const auto& node) { return toml_text(node); });
        }
      }
    }
  } catch (const toml::parse_error&) {
    settings.clear();
  }
  return settings;
}

struct Sorter {
  Run& run;

  void operator()(record::RunStart event) const {
    run.summary.reset();
    run.starts.push_back(std::move(event));
  }
  void operator()(record::Step event) const { run.steps.push_back(std::move(event)); }
  void operator()(const record::Evaluation& event) const { run.evaluations.push_back(event); }
  void operator()(record::CheckpointSaved event) const {
    run.checkpoints.push_back(std::move(event));
  }
  void operator()(record::Message event) const { run.messages.push_back(std::move(event)); }
  void operator()(record::Ranges event) const { run.ranges.push_back(std::move(event)); }
  void operator()(record::TimeSplit event) const { run.time_splits.push_back(std::move(event)); }
  void operator()(record::RunEnd event) const { run.summary = std::move(event.summary); }
};

Run read_run(const path& file, FileSystem& files, std::vector<std::string>& warnings) {
  record::Reading reading = record::read(file, files);
  if (reading.dropped_bytes > 0) {
    warnings.push_back(concat("record ", file.string(), ": the last line, ", reading.dropped_bytes,
                              " bytes, has no end and is left out; the run was killed or goes on"));
  }
  record::require_possible(reading.entries, concat("record ", file.string()));
  Run run;
  run.record = file;
  run.started_s = reading.entries.front().time_s;
  run.last_s = reading.entries.back().time_s;
  for (record::Entry& entry : reading.entries) {
    std::visit(Sorter{run}, std::move(entry.event));
  }
  if (!run.starts.empty()) {
    run.settings = settings_of(run.starts.back().config);
  }
  return run;
}

constexpr int kDepth = 2;  // OUT/<precision>/seed-<n> of a comparison

void add_records_below(const path& folder, int depth, FileSystem& files, std::vector<path>& found) {
  std::vector<std::string> names = list_folder(folder, files);
  std::stable_sort(names.begin(), names.end(), comes_before);
  for (const std::string& name : names) {
    const path below = folder / name;
    if (path_exists(below / kRecord, files)) {
      found.push_back(below / kRecord);
    } else if (depth > 1 && folder_exists(below, files)) {
      add_records_below(below, depth - 1, files, found);
    }
  }
}

std::vector<path> records_of(const path& named, FileSystem& files) {
  if (!folder_exists(named, files)) {
    return {named};
  }
  if (path_exists(named / kRecord, files)) {
    return {named / kRecord};
  }
  std::vector<path> found;
  add_records_below(named, kDepth, files, found);
  MANTISSA_CHECK(!found.empty(), IoError, named.string(), ": holds no run (no ", kRecord,
                 "); name the folder that --out named");
  return found;
}

// The last `count` parts of the name of a run: of its folder when its record has the usual name.
std::string short_name(const path& record, int count) {
  path whole = std::filesystem::absolute(record).lexically_normal();
  whole = whole.filename() == kRecord ? whole.parent_path() : whole;
  path name;
  for (int i = 0; i < count && whole.has_filename(); ++i) {
    name = name.empty() ? whole.filename() : whole.filename() / name;
    whole = whole.parent_path();
  }
  return name.empty() ? record.string() : name.string();
}

void give_names(std::vector<Run>& runs) {
  constexpr int kMostParts = 64;
  std::vector<int> parts(runs.size(), 1);
  for (int round = 1; round < kMostParts; ++round) {
    std::map<std::string, int> holders;
    for (size_t i = 0; i < runs.size(); ++i) {
      runs[i].name = short_name(runs[i].record, parts[i]);
      ++holders[runs[i].name];
    }
    for (size_t i = 0; i < runs.size(); ++i) {
      parts[i] += holders[runs[i].name] > 1 ? 1 : 0;
    }
  }
}

// Where the file lies may differ from machine to machine.
std::string bases_of(const Run& run) {
  const auto setting = [&](const char* key) {
    const auto found = run.settings.find(key);
    return found == run.settings.end() ? std::string() : found->second;
  };
  const std::string held_out = setting("data.validation");
  return concat(path(setting("data.fasta")).filename().string(), ", held out ",
                held_out.empty() ? "nothing" : held_out);
}

}  // namespace

Runs read_runs(const std::vector<path>& paths, FileSystem& files) {
  MANTISSA_CHECK(!paths.empty(), InvalidArgument, "report: no runs; name at least one");
  Runs result;
  std::set<path> seen;
  for (const path& named : paths) {
    for (const path& record : records_of(named, files)) {
      std::error_code error;
      const path resolved = std::filesystem::weakly_canonical(record, error);
      MANTISSA_CHECK(seen.insert(error ? record : resolved).second, InvalidArgument, "report: run ",
                     record.string(), " is named twice; name each once");
      result.runs.push_back(read_run(record, files, result.warnings));
    }
  }
  give_names(result.runs);
  return result;
}

void check_comparable(const std::vector<Run>& runs) {
  const Run* first = nullptr;
  for (const Run& run : runs) {
    if (run.settings.contains("data.fasta")) {
      first = first == nullptr ? &run : first;
      MANTISSA_CHECK(bases_of(run) == bases_of(*first), InvalidArgument, "report: run ", run.name,
                     " is on ", bases_of(run), ", run ", first->name, " on ", bases_of(*first),
                     "; bits per base of other data cannot be compared, make a report of each");
    }
  }
}

record::Summary summary_of(const Run& run) {
  if (run.summary) {
    return *run.summary;
  }
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  record::Summary summary;
  summary.bits_per_base = run.evaluations.empty() ? kNone : run.evaluations.back().bits_per_base;
  summary.loss = run.evaluations.empty() ? kNone : run.evaluations.back().loss;
  summary.markov_bits_per_base = kNone;
  summary.seed = -1;
  std::vector<double> times;
  std::vector<double> rates;
  for (const record::Step& step : run.steps) {
    times.push_back(step.step_time_s);
    rates.push_back(step.tokens_per_s);
    summary.skipped_steps += step.skipped ? 1 : 0;
    summary.peak_bytes["all"] = std::max(summary.peak_bytes["all"], step.peak_bytes);
  }
  summary.step_time_s = quantile(times, 0.5);
  summary.tokens_per_s = quantile(rates, 0.5);
  if (!run.steps.empty()) {
    summary.steps = run.steps.back().step;
    summary.scale = run.steps.back().scale;
  }
  const auto text = [&](const char* key) {
    const auto found = run.settings.find(key);
    return found == run.settings.end() ? std::string() : found->second;
  };
  summary.precision = text("precision.compute");
  summary.policy = text("precision.policy");
  std::istringstream(text("train.seed")) >> summary.seed;
  return summary;
}

}  // namespace mantissa::report
