#include "mantissa/train/score_fields.h"

#include <cctype>

#include "mantissa/base/error.h"

namespace mantissa::train {

ScoreFields::ScoreFields(std::string_view prefix) {
  bool valid = !prefix.empty() && std::isalpha(static_cast<unsigned char>(prefix.front())) != 0;
  for (const char c : prefix) {
    valid = valid && (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_');
  }
  MANTISSA_CHECK(valid, InvalidArgument, "score: prefix \"", prefix,
                 "\"; valid: letters, digits and _, a letter first");
  const auto name = [&](const char* field) { return concat(prefix, '_', field); };
  llr = name("LLR");
  forward = name("LLR_FORWARD");
  reverse = name("LLR_REVERSE");
  fp32 = name("LLR_FP32");
  markov = name("LLR_MARKOV");
  kind = name("KIND");
  reason = name("REASON");
  consequence = name("CONSEQUENCE");
  no_alternative = name("NO_ALTERNATIVE");
  renamed = name("RENAMED_CONTIG");
}

std::vector<std::string> ScoreFields::declarations() const {
  const auto line = [](const std::string& id, const char* number, const char* type,
                       const char* description) {
    return concat("##INFO=<ID=", id, ",Number=", number, ",Type=", type, ",Description=\"",
                  description, "\">");
  };
  return {
      line(llr, "A", "Float",
           "Log-likelihood ratio of the alternative to the reference, nats, mean of both strands"),
      line(forward, "A", "Float", "The ratio on the forward strand"),
      line(reverse, "A", "Float", "The ratio on the reverse strand"),
      line(fp32, "A", "Float", "The mean of both strands computed in FP32"),
      line(markov, "A", "Float", "The ratio by the best Markov model of the training data"),
      line(kind, "A", "String", "What the alternative is"),
      line(reason, "A", "String", "Why the alternative has no score"),
      line(consequence, "A", "String", "What a single base does to a protein"),
      line(no_alternative, "0", "Flag", "The record has no alternative to score"),
      line(renamed, "0", "Flag", "The contig has another name in the FASTA, by the prefix chr"),
  };
}

}  // namespace mantissa::train
