#include <filesystem>
#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/cli/checkpoint_choice.h"
#include "mantissa/cli/command.h"
#include "mantissa/cli/prepare.h"
#include "mantissa/report/text_table.h"
#include "mantissa/train/assembly.h"
#include "mantissa/train/evaluate.h"
#include "mantissa/train/loop.h"

namespace mantissa::cli {
namespace {

struct Options {
  std::string folder;
  std::string checkpoint = "best";
  bool json = false;
};

struct Row {
  std::string name;
  train::EvaluationResult result;
  double markov;
};

std::string fixed(double value) {
  std::ostringstream out;
  out.precision(4);
  out << std::fixed << value;
  return out.str();
}

void run_eval(const Options& options) {
  const std::filesystem::path folder = options.folder;
  const train::RunConfig config = train::load_run(folder);
  prepare_process();
  train::use_allocator(config);
  const train::RunData data = train::open_data(config);
  MANTISSA_CHECK(data.validation != nullptr || data.test != nullptr, InvalidArgument,
                 folder.string(), ": nothing is held out; set data.validation or data.test");
  const checkpoint::Loaded loaded = read_checkpoint(folder, options.checkpoint, "eval");
  train::require_genome(data, loaded.checkpoint.state.text("genome"), config.data.fasta);
  train::Learner learner(config);
  learner.load_state_dict(loaded.checkpoint.state.under("learner"));

  std::vector<Row> rows;
  const auto add = [&](const char* name, const std::shared_ptr<const data::GenomeDataset>& part,
                       const std::vector<genome::Interval>& intervals) {
    if (part != nullptr) {
      rows.push_back({name, evaluate(learner.parts(), part, {.batch = config.microbatch()}),
                      train::markov_bits_per_base(data, intervals)});
    }
  };
  add("validation", data.validation, data.split.validation);
  add("test", data.test, data.split.test);

  if (options.json) {
    nlohmann::ordered_json json;
    json["checkpoint"] = loaded.folder.filename().string();
    json["precision"] = config.precision.compute;
    json["weights"] = learner.ema() ? "ema" : "trained";
    for (const Row& row : rows) {
      json[row.name] = {{"bits_per_base", row.result.bits_per_base},
                        {"loss", row.result.loss},
                        {"targets", row.result.num_targets},
                        {"markov_bits_per_base", row.markov}};
    }
    std::cout << json.dump() << "\n";
    return;
  }
  const std::string weights = learner.ema() ? ", averaged weights" : "";
  std::vector<std::vector<std::string>> table = {
      {loaded.folder.filename().string() + weights, "bits/base", "best Markov", "targets"}};
  for (const Row& row : rows) {
    table.push_back({row.name, fixed(row.result.bits_per_base), fixed(row.markov),
                     std::to_string(row.result.num_targets)});
  }
  std::cout << report::text_table(table);
}

}  // namespace

void add_eval(CLI::App& app, int& /*exit_code*/) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("eval", "Evaluate a run on its held-out data");
  command->add_option("RUN_DIR", options->folder, "folder of the run")
      ->required()
      ->check(refuse_empty_folder);
  command->add_option("--checkpoint", options->checkpoint,
                      "best (default), latest, or a folder name such as step-400");
  command->add_flag("--json", options->json, "one JSON object, the last line of stdout");
  command->callback([options] { run_eval(*options); });
}

}  // namespace mantissa::cli
