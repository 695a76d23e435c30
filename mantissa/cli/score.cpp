#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/cli/checkpoint_choice.h"
#include "mantissa/cli/command.h"
#include "mantissa/cli/prepare.h"
#include "mantissa/cli/score_report.h"
#include "mantissa/cli/stop_signals.h"
#include "mantissa/genome/annotation.h"
#include "mantissa/genome/consequence.h"
#include "mantissa/train/allele_scorer.h"
#include "mantissa/train/loop.h"
#include "mantissa/train/run_model.h"
#include "mantissa/train/score_file.h"
#include "mantissa/train/score_summary.h"
#include "mantissa/train/variant_scorer.h"

namespace mantissa::cli {
namespace {

using numerics::Format;

struct Options {
  std::string run;
  std::string checkpoint = "best";
  std::string vcf;
  std::string fasta;
  std::string out;
  std::optional<std::string> precision;
  std::optional<int64_t> context;
  std::optional<double> agree;
  std::string annotation;
  std::optional<int> code;
  std::optional<std::string> label;
  std::string prefix = "MANTISSA";
  uint64_t save_every = 1000;
  bool json = false;
};

// A line every ten seconds.
class ProgressLine {
 public:
  void show(uint64_t records) {
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_ >= std::chrono::seconds(10)) {
      shown_ = now;
      std::cerr << "mantissa: " << records << " records\n";
    }
  }

 private:
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

// What is read of an annotation, and the Markov model that scores beside the network.
struct Labelling {
  std::optional<train::ScoreLabels> labels;
  std::optional<genome::Consequences> consequences;
  std::optional<genome::MarkovChain> markov;
  uint64_t unknown_contig = 0;
  std::string settings;
};

Labelling open_labelling(const Options& options, const genome::Genome& genome,
                         const train::RunConfig& config) {
  Labelling result;
  if (options.annotation.empty()) {
    MANTISSA_CHECK(!options.label, InvalidArgument,
                   "score: --label without --annotation; name a GFF3 file of the genes");
    MANTISSA_CHECK(!options.code, InvalidArgument,
                   "score: --code without --annotation; name a GFF3 file of the genes");
    return result;
  }
  result.labels = train::parse_score_labels(options.label.value_or("synonymous,nonsense"));
  const int code = options.code.value_or(1);
  const genome::GeneticCode genetic_code(code);
  genome::Annotation annotation = genome::read_gff3(options.annotation, genome);
  result.unknown_contig = annotation.unknown_contig;
  result.consequences.emplace(genome, std::move(annotation), genetic_code);
  const train::RunData data = train::open_data(config);
  result.markov = train::best_markov_chain(data);
  result.settings = concat(", annotation ", hex(xxh3(read_file(options.annotation))), " code ",
                           code, ", trained on ", data.fingerprint);
  return result;
}

void check_options(const Options& options, Format precision) {
  MANTISSA_CHECK(!options.agree || precision != Format::fp32, InvalidArgument,
                 "score: --agree with scores in FP32, which would be compared with themselves; "
                 "leave it out or score in --precision bf16");
  MANTISSA_CHECK(!options.agree || (*options.agree >= 0 && *options.agree <= 1), InvalidArgument,
                 "score: --agree ", *options.agree, "; valid: a share from 0 to 1");
}

void run_score(const Options& options, int& exit_code) {
  const train::RunConfig config = train::load_run(options.run);
  prepare_process();
  train::use_allocator(config);
  train::use_threads(config);
  const train::ScoreFields fields(options.prefix);
  const auto asked =
      options.precision ? std::optional(numerics::parse_format(*options.precision)) : std::nullopt;
  check_options(options, asked.value_or(numerics::parse_format(config.precision.compute)));
  const data::Objective objective = data::parse_objective(config.data.objective);
  const int64_t context = options.context.value_or(config.data.context);
  const checkpoint::Loaded loaded = read_checkpoint(options.run, options.checkpoint, "score");
  const train::RunModel model(config, loaded.checkpoint.state, asked);
  const train::AlleleScorer scorer(model, objective, context);
  const bool compares = model.precision() != Format::fp32 && options.agree.value_or(1) > 0;
  std::optional<train::RunModel> fp32_model;
  std::optional<train::AlleleScorer> fp32_scorer;
  if (compares) {
    fp32_model.emplace(config, loaded.checkpoint.state, Format::fp32);
    fp32_scorer.emplace(*fp32_model, objective, context);
  }
  const genome::Genome genome = genome::Genome::open(options.fasta);
  const Labelling labelling = open_labelling(options, genome, config);

  const train::VariantScorer variants{
      .genome = genome,
      .scorer = scorer,
      .fields = fields,
      .fp32 = fp32_scorer ? &*fp32_scorer : nullptr,
      .fp32_share = options.agree.value_or(1),
      .consequences = labelling.consequences ? &*labelling.consequences : nullptr,
      .markov = labelling.markov ? &*labelling.markov : nullptr,
  };
  const std::string precision(numerics::to_string(model.precision()));
  ProgressLine progress;
  const train::ScoreFileOptions file{
      .settings = concat("weights ", hex(model.fingerprint()), ", precision ", precision,
                         ", context ", context, ", fasta ", train::genome_fingerprint(genome),
                         ", prefix ", options.prefix, ", agree ",
                         compares ? options.agree.value_or(1) : 0, labelling.settings),
      .description = concat("##", options.prefix, "_score=\"", loaded.folder.filename().string(),
                            ", weights ", hex(model.fingerprint()), ", ", config.data.objective,
                            ", ", precision, ", context ", context, "\""),
      .save_every = options.save_every,
      .stop = &stop_flag(),
      .progress = [&](uint64_t records) { progress.show(records); },
  };
  train::ScoreSummary summary;
  const bool done = train::score_file(
      options.vcf, options.out, variants, file, [&](const std::filesystem::path& part) {
        summary = train::summarize_scores(part, fields, labelling.labels);
      });
  if (!done) {
    std::cerr << "mantissa: interrupted; the same command goes on\n";
    exit_code = kSavedRunAgain;
    return;
  }
  ScoredBy by{.checkpoint = loaded.folder.filename().string(),
              .precision = precision,
              .objective = config.data.objective,
              .context = context};
  if (labelling.markov) {
    by.markov_order = labelling.markov->order();
  }
  if (labelling.consequences) {
    by.coding = labelling.consequences->num_coding();
    by.coding_left_out = labelling.consequences->num_left_out();
    by.coding_elsewhere = labelling.unknown_contig;
  }
  if (options.json) {
    std::cout << score_json(by, summary, labelling.labels).dump() << "\n";
  } else {
    std::cout << score_text(by, summary, labelling.labels);
  }
}

}  // namespace

void add_score(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("score", "Score the variants of a VCF file with a trained model");
  command->add_option("--model", options->run, "folder of a run")
      ->required()
      ->check(refuse_empty_folder);
  command->add_option("--vcf", options->vcf, "VCF or BCF file, plain, gzip or bgzip")->required();
  command->add_option("--fasta", options->fasta, "the reference that its positions are of")
      ->required();
  command->add_option("--out", options->out, "a new .vcf, .vcf.gz or .vcf.bgz")->required();
  command->add_option("--checkpoint", options->checkpoint,
                      "best (default), latest, or a folder name such as step-400");
  command->add_option("--precision", options->precision, "default: that of the run")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  command->add_option("--context", options->context,
                      "tokens around a variant; default: data.context of the run");
  command->add_option("--agree", options->agree,
                      "share of the alternatives that are scored in FP32 too, for Spearman's "
                      "correlation; default: 1 below FP32, which takes as long again, 0: none");
  command->add_option("--annotation", options->annotation,
                      "GFF3 file: consequences of single bases in its CDS features");
  command->add_option("--label", options->label,
                      "two consequences, the harmful one last, for AUROC; default: "
                      "synonymous,nonsense");
  command->add_option("--code", options->code,
                      "genetic code, a table of NCBI: 1 (default) 2 3 4 5 11");
  command->add_option("--prefix", options->prefix, "of the INFO fields; default: MANTISSA");
  command->add_option("--save-every", options->save_every,
                      "records after which a repeat goes on; default: 1000");
  command->add_flag("--json", options->json, "one JSON object, the last line of stdout");
  command->callback([options, &exit_code] { run_score(*options, exit_code); });
}

}  // namespace mantissa::cli
