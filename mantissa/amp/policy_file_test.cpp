#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/amp/policy.h"
#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"

namespace mantissa::amp {
namespace {

std::string refusal(const std::string& toml) {
  try {
    (void)parse_policy_toml(toml, "p.toml");
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(PolicyFile, ReadsBaseComputeAndRules) {
  const Policy policy = parse_policy_toml(R"(
base = "torch-cpu"
compute = "fp16"
[rules]
mm = "fp32"
"aten::softmax.int" = "fp32_output"
)",
                                          "p.toml");
  EXPECT_EQ(policy, parse_policy("torch-cpu compute=fp16 mm=fp32 softmax.int=fp32_output"));
}

TEST(PolicyFile, LeavesDefaultsToWhatIsNotGiven) {
  EXPECT_EQ(parse_policy_toml("", "p.toml"), Policy());
  EXPECT_EQ(parse_policy_toml("base = \"fp32\"", "p.toml"), find_policy("fp32"));
}

TEST(PolicyFile, PrintsWhatItParses) {
  for (const std::string text :
       {"fp32", "torch compute=fp16", "torch-cpu compute=tf32", "torch mm=fp32 softmax.int=keep",
        "torch mm@blocks.*=fp32 softmax.int@a.b=keep",
        "torch-fixed fft=keep output=fp32 scope:a.*=fp32 parameter:*.D=fp32", "genomics",
        "apex-o2"}) {
    const Policy policy = parse_policy(text);
    EXPECT_EQ(parse_policy_toml(to_toml(policy), "p.toml"), policy) << to_toml(policy);
  }
}

TEST(PolicyFile, TheExampleInRecipesParses) {
  const Policy policy = find_policy(MANTISSA_SOURCE_DIR "/recipes/policies/example.toml");
  EXPECT_EQ(to_string(policy),
            "torch-fixed compute=bf16 fft=keep bmm@blocks.*.attention=fp32 fft_rfft=fp32 "
            "rms_norm=keep "
            "scope:blocks.*.filter=fp32 parameter:*.A_log=fp32");
}

TEST(PolicyFile, ErrorsNameTheFileAndTheLine) {
  EXPECT_EQ(refusal("base = \"torch\"\nconpute = \"bf16\""),
            "policy p.toml:2: unknown key \"conpute\"; did you mean \"compute\"?");
  EXPECT_EQ(refusal("base = \"torhc\""),
            "policy p.toml:1: unknown base \"torhc\"; did you mean \"torch\"?");
  EXPECT_EQ(refusal("\ncompute = \"fp61\""),
            "policy p.toml:2: unknown format \"fp61\" in \"compute=fp61\"; valid: fp32 tf32 bf16 "
            "fp16");
  EXPECT_EQ(refusal("[rules]\nmm = \"fp32\"\nlayer_nrom = \"fp32\""),
            "policy p.toml:3: unknown operation \"layer_nrom\"; did you mean \"layer_norm\"?");
  EXPECT_EQ(refusal("[rules]\nmm = \"fp23\""),
            "policy p.toml:2: operation \"mm\": rule: unknown \"fp23\"; did you mean \"fp32\"?");
  EXPECT_EQ(refusal("[rules]\nmm = \"fp32\"\n\"aten::mm\" = \"keep\""),
            "policy p.toml:2: operation \"mm\" has two rules; keep one");
}

TEST(PolicyFile, WrongTypesSayWhatToWrite) {
  EXPECT_EQ(refusal("compute = 16"),
            "policy p.toml:1: \"compute\" is not a string; write its value in double quotes");
  EXPECT_EQ(refusal("rules = \"mm\""),
            "policy p.toml:1: \"rules\" is not a table; write [rules], then OPERATION = \"RULE\" "
            "lines");
  EXPECT_EQ(refusal("[rules]\nsoftmax.int = \"fp32\""),
            "policy p.toml:2: \"softmax\" is a table; put a name with a dot in double quotes");
}

TEST(PolicyFile, TextThatIsNotTomlNamesTheLine) {
  EXPECT_THAT(refusal("base = \"torch\"\ncompute ="),
              testing::AllOf(testing::StartsWith("policy p.toml:2: "),
                             testing::EndsWith("; write it as TOML"),
                             testing::Not(testing::HasSubstr("\n"))));
}

TEST(PolicyFile, APrefixOfTheTextIsASectionHere) {
  EXPECT_EQ(refusal("[rules]\n\"scope:head\" = \"fp32\""),
            "policy p.toml:2: \"scope:head\" is not an operation; write what follows \"scope:\" in "
            "[scopes]");
}

TEST(PolicyFile, ANameGivenTwiceSaysToKeepOne) {
  EXPECT_EQ(refusal("[rules]\nmm = \"fp32\"\nmm = \"keep\""),
            "policy p.toml:3: Error while parsing key-value pair: cannot redefine existing string "
            "'mm'; a name is given once, keep one "
            "of them");
}

TEST(PolicyFile, FindPolicyReadsAPathAndNamesAMissingOne) {
  const std::string path = testing::TempDir() + "mantissa_policy_file_test.toml";
  std::ofstream(path) << "[rules]\nmm = \"fp32\"\n";
  EXPECT_EQ(find_policy(path), parse_policy("torch mm=fp32"));
  std::filesystem::remove(path);
  try {
    (void)find_policy(path);
    FAIL() << "expected IoError";
  } catch (const IoError& error) {
    EXPECT_EQ(error.what(), "policy " + path +
                                ": cannot be read; give an existing file, or one that "
                                "mantissa policy list shows");
  }
  EXPECT_EQ(message_of<IoError>([] { (void)find_policy("/"); }),
            "policy /: is a folder; name a policy file (.toml) in it");
}

}  // namespace
}  // namespace mantissa::amp
