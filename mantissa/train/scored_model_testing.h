#pragma once

// For tests: a VariantScorer with a tiny network in its first state.

#include <memory>
#include <string>

#include "mantissa/genome/genome.h"
#include "mantissa/train/allele_scorer.h"
#include "mantissa/train/run_model.h"
#include "mantissa/train/score_fields.h"
#include "mantissa/train/variant_scorer.h"

namespace mantissa::train {

class ScoredModel {
 public:
  ScoredModel(const RunConfig& run, const std::string& fasta)
      : genome_(genome::Genome::parse(fasta)),
        state_(first_state(run)),
        model_(run, state_),
        fp32_(run, state_, numerics::Format::fp32),
        scorer_(model_, data::parse_objective(run.data.objective), run.data.context),
        fp32_scorer_(fp32_, data::parse_objective(run.data.objective), run.data.context),
        fields_("M") {}

  VariantScorer variants() const {
    return {.genome = genome_, .scorer = scorer_, .fields = fields_};
  }
  const AlleleScorer& scorer() const { return scorer_; }
  const AlleleScorer& fp32() const { return fp32_scorer_; }
  const genome::Genome& genome() const { return genome_; }
  const ScoreFields& fields() const { return fields_; }

 private:
  static tensor::StateDict first_state(const RunConfig& run) {
    Learner learner(run);
    tensor::StateDict state;
    state.merge("learner", learner.state_dict());
    return state;
  }

  genome::Genome genome_;
  tensor::StateDict state_;
  RunModel model_;
  RunModel fp32_;
  AlleleScorer scorer_;
  AlleleScorer fp32_scorer_;
  ScoreFields fields_;
};

/// A contig of 60 bases, one with letters that are none, one for a change of its name.
inline const char* const kScoredFasta =
    ">a\nACGTTGCAACGGTCATGACCATTGCAGTCCGATACATTTTTGCATCGATCGGATATCGCT\n"
    ">b\nACGTTGCRACGGTCATGANCATTGCAGTCCGATACAGGTCA\n"
    ">chr7\nACGTTGCAACGGTCATGACCATTGCAGTCC\n";

/// A record of every kind that a VCF file may hold, most of one alternative.
inline const char* const kEveryKind =
    "a\t20\tsnv\tC\tA\t.\t.\t.\n"
    "a\t10\tunsorted\tC\tG,T\t50\tPASS\tAF=0.5,0.1\tGT\t1/2\n"
    "a\t20\tmnv\tCAT\tGAG\t.\t.\t.\n"
    "a\t20\tinsertion\tC\tCGG\t.\t.\t.\n"
    "a\t20\tdeletion\tCAT\tC\t.\t.\t.\n"
    "a\t20\tcomplex\tCAT\tGG\t.\t.\t.\n"
    "a\t1\tafter_base\tAC\tC\t.\t.\t.\n"
    "a\t35\trepeat\tC\tCAT,A\t.\t.\t.\n"
    "a\t20\tseveral\tC\tA,CG,<DEL>,*\t.\t.\tDB\n"
    "a\t20\tsymbolic\tC\t<DUP>\t.\t.\tEND=30\n"
    "a\t20\tstar\tC\t*\t.\t.\t.\n"
    "a\t20\tbreakend\tC\tC]b:5]\t.\t.\t.\n"
    "a\t20\tmissing\tC\t.\t.\t.\t.\n"
    "a\t20\tsame\tC\tC\t.\t.\t.\n"
    "a\t20\tmismatch\tG\tA\t.\t.\t.\n"
    "a\t20\tambiguous_alt\tC\tR\t.\t.\t.\n"
    "b\t8\tambiguous_ref\tA\tC\t.\t.\t.\n"
    "b\t20\tn_nearby\tC\tA\t.\t.\t.\n"
    "7\t20\trenamed\tC\tA\t.\t.\t.\n"
    "chrb\t20\trenamed_too\tC\tA\t.\t.\t.\n"
    "none\t20\tno_contig\tC\tA\t.\t.\t.\n"
    "a\t61\toutside\tC\tA\t.\t.\t.\n"
    "a\t0\ttelomere\tN\tA\t.\t.\t.\n"
    "a\t20\tunreadable\tC\tA-\t.\t.\t.\n"
    "a\t20\ttoo_long\tCATTGCAGTCCGATACATTTT\tC\t.\t.\t.\n"
    "a\t60\tend\tT\tA\t.\t.\t.\n";

inline constexpr int kEveryKindRecords = 26;

}  // namespace mantissa::train
