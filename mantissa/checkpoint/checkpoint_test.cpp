#include "mantissa/checkpoint/checkpoint.h"

#include <gmock/gmock.h>

namespace mantissa::checkpoint {
namespace {

TEST(Environment, DifferencesNameWhatChanged) {
  const Environment saved = {{"cpu", "AVX2"}, {"threads", "2"}, {"torch", "2.13.0"}};
  EXPECT_THAT(differences(saved, saved), ::testing::IsEmpty());
  EXPECT_THAT(differences(saved, {{"cpu", "AVX512"}, {"threads", "2"}, {"mkl", "2024"}}),
              ::testing::ElementsAre("cpu was AVX2 when the checkpoint was saved, is AVX512",
                                     "torch was 2.13.0 when the checkpoint was saved, now unknown",
                                     "mkl was unknown when the checkpoint was saved, is 2024"));
}

}  // namespace
}  // namespace mantissa::checkpoint
