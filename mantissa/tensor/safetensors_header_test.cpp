#include "mantissa/tensor/safetensors_header.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"

namespace mantissa::tensor {
namespace {

std::string message_of(const std::string& text, int64_t data_size) {
  try {
    (void)parse_safetensors_header(text, data_size, "f");
  } catch (const Corruption& error) {
    return error.what();
  }
  return "accepted";
}

// One F32 tensor "a" of shape [2], with these offsets.
std::string one(const std::string& offsets) {
  return R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)" + offsets + "}}";
}

std::string shaped(const std::string& shape, const std::string& end) {
  return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,)" + end + "]}}";
}

TEST(SafetensorsHeader, FormatAndParseAreInverse) {
  const SafetensorsHeader header{.entries = {{"b", at::kDouble, {2, 3}, 0, 48},
                                             {"scalar", at::kFloat, {}, 48, 52},
                                             {"a.\"quoted\" \xC3\xA9", at::kBFloat16, {1}, 52, 54},
                                             {"empty", at::kFloat8_e4m3fn, {0, 5}, 54, 54}},
                                 .metadata = {{"format", "pt"}, {"", "x"}}};
  const std::string text = format_safetensors_header(header, "f");
  EXPECT_EQ(text.size() % 8, 0U);
  const SafetensorsHeader read = parse_safetensors_header(text, 54, "f");
  EXPECT_EQ(read.metadata, header.metadata);
  ASSERT_EQ(read.entries.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(read.entries[i].name, header.entries[i].name);
    EXPECT_EQ(read.entries[i].dtype, header.entries[i].dtype);
    EXPECT_EQ(read.entries[i].shape, header.entries[i].shape);
    EXPECT_EQ(read.entries[i].begin, header.entries[i].begin);
    EXPECT_EQ(read.entries[i].end, header.entries[i].end);
  }
}

TEST(SafetensorsHeader, NoTensorsAreAHeaderToo) {
  EXPECT_EQ(message_of("{}", 0), "accepted");
  EXPECT_EQ(format_safetensors_header({}, "f"), "{}      ");
}

TEST(SafetensorsHeader, TheTensorsFillTheDataExactly) {
  const std::string damaged = "; the file is damaged, use another copy";
  EXPECT_EQ(message_of(one("[0,8]"), 8), "accepted");
  EXPECT_EQ(message_of(one("[0,8]"), 9), "f: the tensors end at byte 8 of 9" + damaged);
  EXPECT_EQ(message_of(one("[0,8]"), 7),
            "f: tensor \"a\" has bytes 0 to 8 where 0 to at most 7 were due" + damaged);
  EXPECT_EQ(message_of(one("[1,9]"), 9),
            "f: tensor \"a\" has bytes 1 to 9 where 0 to at most 9 were due" + damaged);
  EXPECT_EQ(message_of(one("[8,0]"), 8),
            "f: tensor \"a\" has bytes 8 to 0 where 0 to at most 8 were due" + damaged);
  EXPECT_EQ(message_of(one("[0,12]"), 12),
            "f: tensor \"a\" has 12 bytes, its shape and dtype want 8" + damaged);
  const std::string overlap = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})";
  EXPECT_EQ(message_of(overlap, 6),
            "f: tensor \"b\" has bytes 2 to 6 where 4 to at most 6 were due" + damaged);
}

TEST(SafetensorsHeader, AnOverflowOfTheShapeIsNotASmallSize) {
  const std::string huge = "4611686018427387904";  // 2^62: times 4 it wraps to 0
  EXPECT_EQ(message_of(shaped("[" + huge + "]", "0"), 0),
            "f: tensor \"a\" has 0 bytes, its shape and dtype want more than a file can hold; the "
            "file is damaged, use another copy");
  EXPECT_NE(message_of(shaped("[4294967296,4294967296]", "0"), 0), "accepted");
  EXPECT_NE(message_of(shaped("[0," + huge + "]", "0"), 0), "accepted");
  EXPECT_EQ(message_of(shaped("[9223372036854775808]", "0"), 0),
            "f: tensor \"a\" has 9223372036854775808 in its shape, which no file can hold; the "
            "file is damaged, use another copy");
  EXPECT_EQ(message_of(shaped("[0,3]", "0"), 0), "accepted");
}

TEST(SafetensorsHeader, OnlyTheGrammarOfTheFormatIsAccepted) {
  const std::string start = R"({"a":{"dtype":"F32","shape":[2])";
  const std::vector<std::string> bad = {
      "",
      " {}",
      "[]",
      "{",
      "{}{}",
      "{} x",
      R"({"a":1})",
      R"({"a":[]})",
      R"({"a":{}})",
      R"({"a":null})",
      start + "}}",
      start + R"(,"data_offsets":[0]}})",
      start + R"(,"data_offsets":[0,8,8]}})",
      start + R"(,"data_offsets":[0,-8]}})",
      start + R"(,"data_offsets":[0,8.0]}})",
      start + R"(,"data_offsets":[0,[8]]}})",
      start + R"(,"data_offsets":{"begin":0}}})",
      start + R"(,"data_offsets":"0"}})",
      start + R"(,"data_offsets":[0,8],"x":1}})",
      start + R"(,"data_offsets":[0,8],"shape":[2]}})",
      R"({"a":{"dtype":["F32"],"shape":[2],"data_offsets":[0,8]}})",
      R"({"__metadata__":{"a":1}})",
      R"({"__metadata__":{"a":{}}})",
      R"({"__metadata__":{"a":"1","a":"2"}})",
      R"({"__metadata__":{},"__metadata__":{}})",
      R"({"__metadata__":[]})",
      std::string(100000, '['),
      "{\"a\":" + std::string(100000, '['),
      "{\"\xff\":{}}"};
  for (const std::string& text : bad) {
    EXPECT_NE(message_of(text, 8), "accepted") << text.substr(0, 100);
  }
}

TEST(SafetensorsHeader, MessagesSayWhatIsWrong) {
  const std::string tensor = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(message_of("{" + tensor + "," + tensor + "}", 8),
            "f: key \"a\" is there twice; the file is damaged, use another copy");
  EXPECT_EQ(message_of(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", 8),
            "f: tensor \"a\" has unknown dtype \"F31\"; valid: F64 F32 F16 BF16 F8_E4M3 F8_E5M2 "
            "I64 I32 I16 I8 U8 BOOL");
  EXPECT_EQ(message_of("\x80", 0),
            "f: the header does not begin with {; it is not a safetensors file, or damaged");
  EXPECT_EQ(message_of("{\"\xff\":{}}", 0),
            "f: the header is not JSON in UTF-8 at byte 3; the file is damaged, use another copy");
  EXPECT_EQ(message_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
            "f: the header has a negative number where the format has none, at \"a\"; the file is "
            "damaged, use another copy");
  EXPECT_EQ(message_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8),
            "f: tensor \"a\" needs dtype, shape and data_offsets; the file is damaged, use another "
            "copy");
  EXPECT_EQ(message_of(one("[0]"), 8),
            "f: tensor \"a\" has 1 data_offsets, not 2; the file is damaged, use another copy");
  std::string many = "[1";
  for (int i = 0; i < 64; ++i) {
    many += ",1";
  }
  EXPECT_EQ(message_of(shaped(many + "]", "4"), 4),
            "f: tensor \"a\" has more than 64 numbers in its shape; the file is damaged, use "
            "another copy");
}

TEST(SafetensorsHeader, NamesThatCannotBeWrittenAreRefused) {
  const auto message = [](const SafetensorsHeader& header) {
    try {
      (void)format_safetensors_header(header, "f");
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({.entries = {{"\xff", at::kFloat, {}, 0, 4}}}),
            "f: a name or metadata is not UTF-8; use UTF-8 text");
  EXPECT_EQ(message({.entries = {{"__metadata__", at::kFloat, {}, 0, 4}}}),
            "f: a tensor is called \"__metadata__\", which the format keeps for itself; choose "
            "another name");
  EXPECT_EQ(message({.metadata = {{"a", std::string(100'000'000, 'x')}}}),
            "f: the header has 100000032 bytes, at most 100000000 are read; use fewer or shorter "
            "names");
}

TEST(SafetensorsHeader, RandomChangesAreParsedOrRefused) {
  const uint64_t seed = 9;
  SCOPED_TRACE(seed);
  Random random(seed, 0);
  const std::string text =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
  ASSERT_EQ(message_of(text, 9), "accepted");
  for (int i = 0; i < 50000; ++i) {
    std::string changed = text;
    for (uint64_t n = random.below(3); n < 3; ++n) {
      const size_t position = random.below(changed.size());
      const size_t length = random.below(4);
      changed.replace(position, length, text.substr(random.below(text.size()), random.below(4)));
    }
    (void)message_of(changed, 9);  // neither another exception nor a crash
  }
}

}  // namespace
}  // namespace mantissa::tensor
