#include "mantissa/cli/arms.h"

#include <algorithm>
#include <cctype>
#include <iostream>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/name_list.h"
#include "mantissa/record/reader.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/microbatch.h"

namespace mantissa::cli {
namespace {

namespace fs = std::filesystem;

// A policy may be a path or a text with spaces.
std::string folder_name(const std::string& arm) {
  std::string name = arm;
  for (char& letter : name) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
                          std::string_view("-_=.:").find(letter) != std::string_view::npos;
    letter = is_plain ? letter : '_';
  }
  return name;
}

struct Draft {
  Arm arm;
  std::vector<train::Setting> settings;
};

std::vector<Draft> formats_of(const Variations& variations) {
  const std::vector<std::string> policies = parse_names("--policies", variations.policies);
  std::vector<Draft> drafts;
  const auto add = [&drafts](const std::string& name, std::vector<train::Setting> settings) {
    Draft& draft = drafts.emplace_back();
    draft.arm.name = draft.arm.format = name;
    draft.settings = std::move(settings);
  };
  for (const std::string& precision : parse_names("--precisions", variations.precisions)) {
    if (policies.empty() || precision == "fp32") {
      add(precision, {{"precision.compute", precision}});
      continue;
    }
    for (const std::string& policy : policies) {
      add(concat(precision, " ", policy),
          {{"precision.compute", precision}, {"precision.policy", policy}});
    }
  }
  MANTISSA_CHECK(policies.empty() || drafts.size() > 1 || drafts.front().arm.format != "fp32",
                 InvalidArgument,
                 "--policies: they differ in nothing in fp32; add another of --precisions");
  return drafts;
}

// One microbatch is part of no name.
std::vector<Draft> with_microbatches(const std::vector<Draft>& formats,
                                     const std::vector<std::string>& microbatches) {
  if (microbatches.empty()) {
    return formats;
  }
  std::vector<Draft> drafts;
  drafts.reserve(formats.size() * microbatches.size());
  for (const Draft& format : formats) {
    for (const std::string& microbatch : microbatches) {
      Draft& draft = drafts.emplace_back(format);
      draft.arm.microbatch = microbatch;
      draft.settings.push_back({"train.microbatch", microbatch});
      if (microbatches.size() > 1) {
        draft.arm.name += " microbatch " + microbatch;
      }
    }
  }
  return drafts;
}

// Of a run of the arm that has begun.
std::optional<int64_t> microbatch_there(const Arm& arm) {
  if (!fs::is_directory(arm.folder)) {
    return std::nullopt;
  }
  for (const fs::directory_entry& seed : fs::directory_iterator(arm.folder)) {
    const fs::path config = seed.path() / "run.toml";
    if (path_exists(config)) {
      return train::load_run_config(config, {}).train.microbatch;
    }
  }
  return std::nullopt;
}

// Without what arms of a comparison differ in, and the seed.
std::string common_settings(train::RunConfig run, const train::RunConfig& of) {
  run.precision = of.precision;
  run.scale = of.scale;
  run.optim.masters = of.optim.masters;
  run.train.microbatch = of.train.microbatch;
  run.train.memory = of.train.memory;
  run.train.seed = of.train.seed;
  return train::to_toml(run);
}

// Nothing when it has not ended, or is of another comparison.
std::optional<report::StudyRun> read_run(const fs::path& folder, const Arm& of) {
  if (!path_exists(folder / "run.toml") || !path_exists(folder / "record.jsonl")) {
    return std::nullopt;
  }
  const train::RunConfig config = train::load_run_config(folder / "run.toml", {});
  if (common_settings(config, of.config) != train::to_toml(of.config)) {
    std::cerr << "compare: " << folder.string()
              << " holds a run with other settings, which comparison.json leaves out\n";
    return std::nullopt;
  }
  report::StudyRun run;
  run.microbatch = config.microbatch();
  run.entries = record::read(folder / "record.jsonl").entries;
  record::require_possible(run.entries, concat("record ", (folder / "record.jsonl").string()));
  const auto* end = std::get_if<record::RunEnd>(&run.entries.back().event);
  if (end == nullptr) {
    return std::nullopt;
  }
  run.summary = end->summary;
  return run;
}

}  // namespace

train::RunConfig Arm::config_of(int64_t seed_index) const {
  train::RunConfig result = config;
  result.train.seed += seed_index;
  return result;
}

fs::path Arm::folder_of(int64_t seed_index) const {
  return folder / concat("seed-", config.train.seed + seed_index);
}

std::vector<Arm> make_arms(const std::string& run_file, const std::vector<train::Setting>& settings,
                           const Variations& variations, const fs::path& out) {
  const std::vector<Draft> drafts = with_microbatches(
      formats_of(variations), parse_names("--microbatch", variations.microbatches));
  std::vector<std::vector<train::Setting>> alternatives;
  alternatives.reserve(drafts.size());
  for (const Draft& draft : drafts) {
    alternatives.push_back(draft.settings);
  }
  const std::vector<train::RunConfig> configs =
      train::load_run_configs(run_file, settings, alternatives);
  std::vector<Arm> arms;
  arms.reserve(drafts.size());
  std::set<fs::path> folders;
  for (size_t i = 0; i < drafts.size(); ++i) {
    Arm& arm = arms.emplace_back(drafts[i].arm);
    arm.folder = out / folder_name(arm.name);
    arm.config = configs[i];
    MANTISSA_CHECK(folders.insert(arm.folder).second, InvalidArgument, "--policies: \"", arm.name,
                   "\" and one before it have the same folder ", arm.folder.string(),
                   "; compare them one at a time");
  }
  return arms;
}

const Arm& reference_of(const std::vector<Arm>& arms) {
  const auto fp32 =
      std::find_if(arms.begin(), arms.end(), [](const Arm& arm) { return arm.format == "fp32"; });
  return fp32 == arms.end() ? arms.front() : *fp32;
}

void decide_microbatches(std::vector<Arm>& arms) {
  for (Arm& arm : arms) {
    if (arm.config.train.microbatch != train::kAutoMicrobatch) {
      continue;
    }
    if (const std::optional<int64_t> there = microbatch_there(arm)) {
      arm.config.train.microbatch = *there;
      arm.config.train.memory.clear();
      continue;
    }
    train::use_allocator(arm.config);
    std::string told;
    arm.config = train::with_microbatch(arm.config, train::open_data(arm.config), &told);
    std::cerr << "compare: " << arm.name << ": " << told << "\n";
  }
}

std::vector<report::AttributionCell> cells_of(const std::vector<Arm>& arms) {
  const std::string& format = reference_of(arms).format;
  std::vector<report::AttributionCell> cells;
  cells.reserve(arms.size());
  for (const Arm& arm : arms) {
    cells.push_back({arm.name, arm.format, arm.microbatch});
  }
  std::stable_partition(cells.begin(), cells.end(),
                        [&](const report::AttributionCell& cell) { return cell.format == format; });
  return cells;
}

std::vector<report::StudyRun> earlier_runs(const fs::path& out,
                                           const std::vector<record::Slice>& slices,
                                           const std::vector<Arm>& arms,
                                           const std::vector<report::StudyRun>& asked) {
  std::set<std::pair<std::string, int64_t>> seen;
  for (const report::StudyRun& run : asked) {
    seen.emplace(run.arm, run.seed);
  }
  std::vector<report::StudyRun> runs;
  for (const record::Slice& slice : slices) {
    if (!seen.emplace(slice.arm, slice.seed).second) {
      continue;
    }
    const fs::path folder = out / folder_name(slice.arm) / concat("seed-", slice.seed);
    if (std::optional<report::StudyRun> run = read_run(folder, arms.front())) {
      run->arm = slice.arm;
      run->seed = slice.seed;
      runs.push_back(std::move(*run));
    }
  }
  return runs;
}

}  // namespace mantissa::cli
