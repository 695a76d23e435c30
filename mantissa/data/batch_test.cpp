#include "mantissa/data/batch.h"

#include <gtest/gtest.h>

#include "mantissa/data/genome_dataset.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::data {
namespace {

using genome::Genome;
using genome::Strand;

TEST(Batch, HasARowForEachSampleInOrder) {
  const auto genome = std::make_shared<const Genome>(Genome::parse(">a\nAACCGGTTAC\n"));
  const GenomeDataset dataset(genome, {{0, 0, 10}}, {.context = 3});
  ASSERT_EQ(dataset.size(), 3U);
  const Batch batch =
      make_batch(fill_buffer(dataset, {{0, 2, Strand::forward}, {1, 0, Strand::reverse}}), 7);
  EXPECT_EQ(batch.index, 7U);
  ASSERT_EQ(batch.tokens.sizes(), (at::IntArrayRef{2, 3}));
  ASSERT_EQ(batch.targets.sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_EQ(batch.tokens.scalar_type(), at::kLong);
  EXPECT_EQ(batch.targets.scalar_type(), at::kLong);
  const int64_t* tokens = batch.tokens.const_data_ptr<int64_t>();
  EXPECT_EQ((std::vector<int64_t>(tokens, tokens + 6)),
            (std::vector<int64_t>{kT, kT, kA, kG, kG, kT}));
  const int64_t* targets = batch.targets.const_data_ptr<int64_t>();
  EXPECT_EQ((std::vector<int64_t>(targets, targets + 6)),
            (std::vector<int64_t>{kT, kA, kC, kG, kT, kT}));
  ASSERT_EQ(batch.positions.size(), 2U);
  EXPECT_EQ(batch.positions[0], (Position{{0, 6, 10}, Strand::forward}));
  EXPECT_EQ(batch.positions[1], (Position{{0, 0, 4}, Strand::reverse}));
}

}  // namespace
}  // namespace mantissa::data
