#include "mantissa/data/genome_dataset.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::data {
namespace {

using genome::Genome;
using genome::Strand;

std::shared_ptr<const Genome> genome_of(const std::string& letters) {
  return std::make_shared<const Genome>(Genome::parse(">a\n" + letters + "\n"));
}

struct Row {
  std::string tokens;
  std::string targets;  // '.' where not scored
  Position position;
};

Row row_of(const Dataset& dataset, const Sample& sample) {
  const auto context = static_cast<size_t>(dataset.context());
  std::vector<int64_t> tokens(context);
  std::vector<int64_t> targets(context);
  Row row;
  row.position = dataset.fill(sample, tokens, targets);
  for (size_t i = 0; i < context; ++i) {
    row.tokens += token_text(tokens[i]);
    row.targets += targets[i] == kIgnore ? "." : token_text(targets[i]);
  }
  return row;
}

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(GenomeDataset, CausalTargetsAreTheNextTokens) {
  const GenomeDataset dataset(genome_of("AACCGGTTAC"), {{0, 1, 10}}, {.context = 4});
  ASSERT_EQ(dataset.size(), 2U);
  const Row first = row_of(dataset, {0, 0, Strand::forward});
  EXPECT_EQ(first.tokens, "ACCG");
  EXPECT_EQ(first.targets, "CCGG");
  EXPECT_EQ(first.position, (Position{{0, 1, 6}, Strand::forward}));
  const Row second = row_of(dataset, {1, 1, Strand::forward});
  EXPECT_EQ(second.tokens, "GTTA");
  EXPECT_EQ(second.targets, "TTAC");
}

TEST(GenomeDataset, TheReverseStrandIsReadFromItsOwnStart) {
  const GenomeDataset dataset(genome_of("AACCG"), {{0, 0, 5}}, {.context = 4});
  const Row row = row_of(dataset, {0, 0, Strand::reverse});
  EXPECT_EQ(row.tokens, "CGGT");
  EXPECT_EQ(row.targets, "GGTT");
  EXPECT_EQ(row.position.strand, Strand::reverse);
}

TEST(GenomeDataset, UnknownLettersAreReadAsNAndNotScored) {
  const GenomeDataset dataset(genome_of("AcnRG"), {{0, 0, 5}}, {.context = 4});
  const Row row = row_of(dataset, {0, 0, Strand::forward});
  EXPECT_EQ(row.tokens, "ACNN");
  EXPECT_EQ(row.targets, "C..G");
}

TEST(GenomeDataset, MaskedTargetsAreWhatWasHidden) {
  GenomeDatasetOptions options{.context = 8, .objective = Objective::masked};
  options.masking = {.seed = 3, .chosen = 0.5, .masked = 1, .replaced = 0};
  const GenomeDataset dataset(genome_of("AACCGGTTAACCGGTT"), {{0, 0, 16}}, options);
  ASSERT_EQ(dataset.size(), 2U);
  const Row row = row_of(dataset, {7, 1, Strand::forward});
  std::string restored;
  for (size_t i = 0, token = 0; i < 8; ++i) {
    const bool hidden = row.tokens.compare(token, 6, "[MASK]") == 0;
    EXPECT_EQ(hidden, row.targets[i] != '.');
    restored += hidden ? row.targets[i] : row.tokens[token];
    token += hidden ? 6 : 1;
  }
  EXPECT_EQ(restored, "AACCGGTT");
  EXPECT_EQ(row_of(dataset, {7, 1, Strand::forward}).tokens, row.tokens);
  EXPECT_NE(row_of(dataset, {8, 1, Strand::forward}).tokens, row.tokens);
}

TEST(GenomeDataset, ScoredOnceEachBaseButTheFirstOfAStretchIsATargetOnce) {
  const std::string letters = "ACGTTGCAACGTACCA";
  for (const int64_t stride : {1, 2, 4}) {
    const GenomeDataset dataset(genome_of(letters), {{0, 0, letters.size()}},
                                {.context = 4, .stride = stride, .scoring = Scoring::once});
    std::string scored;
    for (uint64_t window = 0; window < dataset.size(); ++window) {
      for (const char target : row_of(dataset, {window, window, Strand::forward}).targets) {
        if (target != '.') {
          scored += target;
        }
      }
    }
    EXPECT_EQ(scored, letters.substr(1)) << stride;
  }
}

TEST(GenomeDataset, ScoredOnceIsReadForward) {
  const GenomeDataset dataset(genome_of("ACGTAC"), {{0, 0, 6}},
                              {.context = 4, .scoring = Scoring::once});
  EXPECT_EQ(error_of([&] {
              row_of(dataset, {0, 0, Strand::reverse});
            }),
            "fill: windows whose bases are scored once are read forward; valid: Strand::forward");
}

TEST(GenomeDataset, ReadsObjectivesByName) {
  EXPECT_EQ(parse_objective("causal"), Objective::causal);
  EXPECT_EQ(parse_objective("masked"), Objective::masked);
  EXPECT_EQ(to_string(Objective::masked), "masked");
  EXPECT_EQ(error_of([] { (void)parse_objective("maskd"); }),
            "dataset: unknown objective \"maskd\"; did you mean \"masked\"?");
}

TEST(GenomeDataset, RefusesSettingsOutOfRange) {
  const auto genome = genome_of("ACGTAC");
  const auto error = [&](const GenomeDatasetOptions& options) {
    return error_of([&] { const GenomeDataset dataset(genome, {{0, 0, 6}}, options); });
  };
  EXPECT_EQ(error({.context = 0}), "dataset: context 0; valid: 1 or more tokens");
  EXPECT_EQ(error({.context = 2, .stride = -1}), "dataset: stride -1; valid: 1 or more bases");
  EXPECT_EQ(error({.context = 6}),
            "windows: the longest stretch without a gap (10 or more N or other letters than A, C, "
            "G and T) has 6 bases, a window needs 7; use a shorter context or a longer sequence");
  EXPECT_EQ(error({.context = 2, .objective = Objective::masked, .masking = {.chosen = 2}}),
            "masking: chosen 2; valid: more than 0, at most 1");
  EXPECT_EQ(error_of([] { const GenomeDataset dataset(nullptr, {}, {}); }),
            "dataset: no genome; open one first");
  const GenomeDataset dataset(genome, {{0, 0, 6}}, {.context = 3});
  std::vector<int64_t> room(2);
  EXPECT_EQ(error_of([&] { dataset.fill({}, room, room); }),
            "fill: room for 2 tokens and 2 targets; the context is 3");
}

}  // namespace
}  // namespace mantissa::data
