#include "mantissa/checkpoint/manifest.h"

#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"

namespace mantissa::checkpoint {
namespace {

Manifest example() {
  return {.step = 400,
          .environment = {{"torch", "2.13.0"}},
          .scalars = {{"a", int64_t{-7}},
                      {"b", 0.1},
                      {"c", std::string("text")},
                      {"d", std::numeric_limits<double>::infinity()},
                      {"e", 3.0}},
          .tensors = {{"w", {"BF16", {2, 3}, 0x1b2f09aa}}},
          .tensors_file = {123, 0x77c0d1e4}};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t position = text.find(from);
  EXPECT_NE(position, std::string::npos) << from;
  return text.replace(position, from.size(), to);
}

TEST(Manifest, ReadsBackWhatWasWritten) {
  const Manifest manifest = example();
  const Manifest read = parse_manifest(format_manifest(manifest, "c"), "c");
  EXPECT_EQ(read.step, manifest.step);
  EXPECT_EQ(read.environment, manifest.environment);
  EXPECT_EQ(read.scalars, manifest.scalars);  // the kinds too: 3.0 stays real
  EXPECT_EQ(read.tensors, manifest.tensors);
  EXPECT_EQ(read.tensors_file, manifest.tensors_file);
}

TEST(Manifest, ANanStaysANan) {
  Manifest manifest;
  manifest.scalars["x"] = std::numeric_limits<double>::quiet_NaN();
  const Manifest read = parse_manifest(format_manifest(manifest, "c"), "c");
  EXPECT_TRUE(std::isnan(std::get<double>(read.scalars.at("x"))));
}

TEST(Manifest, RealsReadBackToTheLastBit) {
  const uint64_t seed = 8;
  SCOPED_TRACE(seed);
  Random random(seed, 0);
  Manifest manifest;
  for (int i = 0; i < 1000; ++i) {
    manifest.scalars[std::to_string(i)] = random.normal() * std::exp(100 * random.normal());
  }
  EXPECT_EQ(parse_manifest(format_manifest(manifest, "c"), "c").scalars, manifest.scalars);
}

TEST(Manifest, BytesThatAreNotUtf8AreRefused) {
  Manifest manifest;
  manifest.scalars["x"] = std::string("\xff");
  try {
    (void)format_manifest(manifest, "checkpoint c");
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "checkpoint c: a name or text of the state is not UTF-8; keep bytes in a uint8 "
                 "tensor");
  }
}

TEST(Manifest, WhatIsNoManifestIsCorruption) {
  const std::string text = format_manifest(example(), "c");
  const std::string bad[] = {
      "",
      "[]",
      "{}",
      text.substr(0, text.size() / 2),
      replaced(text, "400", "400.5"),
      replaced(text, "400", "\"400\""),
      replaced(text, "000000001b2f09aa", "1b2f09aa"),
      replaced(text, "000000001b2f09aa", "000000001B2F09AA"),
      replaced(text, "\"integer\": -7", "\"integer\": 18446744073709551615"),
      replaced(text, "\"integer\": -7", "\"whole\": -7"),
      replaced(text, "tensors.safetensors", "../../etc/passwd"),
      replaced(text, "\"real\": 0.1", "\"real\": \"much\""),
  };
  for (const std::string& bytes : bad) {
    try {
      (void)parse_manifest(bytes, "checkpoint c");
      FAIL() << "expected Corruption of " << bytes;
    } catch (const Corruption& error) {
      EXPECT_STREQ(error.what(),
                   "checkpoint c: manifest.json is not a manifest; the checkpoint is damaged, use "
                   "another");
    }
  }
}

TEST(Manifest, ALaterSchemaIsUnsupported) {
  const std::string text =
      replaced(format_manifest(example(), "c"), "\"schema\": 1", "\"schema\": 2");
  try {
    (void)parse_manifest(text, "checkpoint c");
    FAIL() << "expected Unsupported";
  } catch (const Unsupported& error) {
    EXPECT_STREQ(error.what(),
                 "checkpoint c: of schema 2, this mantissa reads up to 1; use a later mantissa");
  }
}

TEST(Manifest, RandomChangesNeverDoMoreThanThrow) {
  const uint64_t seed = 6;
  SCOPED_TRACE(seed);
  Random random(seed, 0);
  const std::string text = format_manifest(example(), "c");
  for (int i = 0; i < 5000; ++i) {
    std::string changed = text;
    changed[random.below(changed.size())] = static_cast<char>(random.below(256));
    try {
      (void)parse_manifest(changed, "c");
    } catch (const Corruption&) {
    } catch (const Unsupported&) {
    }
  }
}

}  // namespace
}  // namespace mantissa::checkpoint
