#include "reference_model.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "phix174.h"

namespace mantissa::golden {
namespace {

using numerics::Format;

std::string failure_of(std::string_view bases) {
  try {
    const ReferenceTraining training(Format::fp32, bases);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(ReferenceTraining, NamesALetterThatIsNoBase) {
  EXPECT_EQ(failure_of("ACGTNACGT"), "golden: letter \"N\" in the bases; valid: A C G T");
}

TEST(ReferenceTraining, RefusesATextWithoutAWindow) {
  EXPECT_EQ(failure_of("ACGT"), "golden: 4 bases; pass at least 5");
  EXPECT_EQ(failure_of("ACGTA"), "");
}

TEST(ReferenceTraining, InputsAreTheBasesBeforeTheTarget) {
  const Step step = ReferenceTraining(Format::fp32, "ACGTA").step();
  for (int64_t row = 0; row < kBatch; ++row) {
    for (int64_t i = 0; i < kInputs; ++i) {
      EXPECT_EQ(step.batch.inputs.at(row, i), i / kBases == i % kBases ? 1.0F : 0.0F);
    }
    EXPECT_EQ(step.batch.targets[row], 0);
  }
}

TEST(ReferenceTraining, ASkippedStepChangesNoWeight) {
  ReferenceTraining training(Format::fp16, phix174());
  const Step first = training.step();
  EXPECT_FALSE(first.applied);
  EXPECT_EQ(first.after.hidden.values, first.before.hidden.values);
  EXPECT_EQ(first.after.output.values, first.before.output.values);
  EXPECT_EQ(training.step().scale, first.scale * kScaleBackoff);
}

TEST(BasesOfFasta, AreTheLinesAfterTheFirst) {
  EXPECT_EQ(bases_of_fasta(">name\nACG\r\nTA\n"), "ACGTA");
  EXPECT_EQ(bases_of_fasta(">name"), "");
}

}  // namespace
}  // namespace mantissa::golden
