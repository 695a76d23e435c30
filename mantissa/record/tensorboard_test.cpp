#include "mantissa/record/tensorboard.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/memory_files.h"

namespace mantissa::record {
namespace {

constexpr const char* kPath = "/events.out.tfevents.0.mantissa";

// A decoder of its own, from the published format, which shares no code with the writer.
struct Histogram {
  std::map<uint64_t, double> numbers;  // by field: min, max, num, sum, sum_squares
  std::vector<double> limits;
  std::vector<double> counts;
};

struct Point {
  double time_s = 0;
  int64_t step = 0;
  std::string version;
  std::map<std::string, float> values;
  std::map<std::string, Histogram> histograms;
};

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}

  bool done() const { return position_ == bytes_.size(); }

  template <typename Value>
  Value fixed() {
    Value value{};
    std::memcpy(&value, take(sizeof(Value)).data(), sizeof(Value));
    return value;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = fixed<uint8_t>();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) {
        return value;
      }
    }
  }

  std::string_view take(size_t size) {
    EXPECT_LE(position_ + size, bytes_.size());
    const std::string_view part = bytes_.substr(position_, size);
    position_ += size;
    return part;
  }

 private:
  std::string_view bytes_;
  size_t position_ = 0;
};

uint32_t unmasked(uint32_t masked) {
  const uint32_t rotated = masked - 0xA282EAD8U;
  return rotated >> 17 | rotated << 15;
}

std::vector<double> doubles(std::string_view bytes) {
  Decoder decoder(bytes);
  std::vector<double> values;
  while (!decoder.done()) {
    values.push_back(decoder.fixed<double>());
  }
  return values;
}

Histogram decode_histogram(std::string_view bytes) {
  Decoder decoder(bytes);
  Histogram histogram;
  while (!decoder.done()) {
    const uint64_t key = decoder.varint();
    if (key == (6 << 3 | 2)) {
      histogram.limits = doubles(decoder.take(decoder.varint()));
    } else if (key == (7 << 3 | 2)) {
      histogram.counts = doubles(decoder.take(decoder.varint()));
    } else {
      EXPECT_EQ(key & 7, 1U) << "a double";
      histogram.numbers[key >> 3] = decoder.fixed<double>();
    }
  }
  return histogram;
}

void decode_value(std::string_view bytes, Point& point) {
  Decoder decoder(bytes);
  std::string tag;
  while (!decoder.done()) {
    switch (decoder.varint()) {
      case 1 << 3 | 2:
        tag = decoder.take(decoder.varint());
        break;
      case 2 << 3 | 5:
        point.values[tag] = decoder.fixed<float>();
        break;
      case 5 << 3 | 2:
        point.histograms[tag] = decode_histogram(decoder.take(decoder.varint()));
        break;
      default:
        FAIL() << "unknown field of Value";
    }
  }
}

Point decode_event(std::string_view bytes) {
  Point point;
  Decoder decoder(bytes);
  while (!decoder.done()) {
    switch (decoder.varint()) {
      case 1 << 3 | 1:
        point.time_s = decoder.fixed<double>();
        break;
      case 2 << 3 | 0:
        point.step = static_cast<int64_t>(decoder.varint());
        break;
      case 3 << 3 | 2:
        point.version = decoder.take(decoder.varint());
        break;
      case 5 << 3 | 2: {
        Decoder summary(decoder.take(decoder.varint()));
        while (!summary.done()) {
          EXPECT_EQ(summary.varint(), 1U << 3 | 2U);
          decode_value(summary.take(summary.varint()), point);
        }
        break;
      }
      default:
        ADD_FAILURE() << "unknown field of Event";
        return point;
    }
  }
  return point;
}

std::vector<Point> decode(std::string_view bytes) {
  std::vector<Point> points;
  Decoder decoder(bytes);
  while (!decoder.done()) {
    const std::string_view length = decoder.take(8);
    EXPECT_EQ(unmasked(decoder.fixed<uint32_t>()), crc32c(length));
    uint64_t size = 0;
    std::memcpy(&size, length.data(), 8);
    const std::string_view data = decoder.take(size);
    EXPECT_EQ(unmasked(decoder.fixed<uint32_t>()), crc32c(data));
    points.push_back(decode_event(data));
  }
  return points;
}

// The bytes of the first record, by hand: 9 bytes of wall time 0, 2 of step 0, 15 of the version.
TEST(TensorBoard, BeginsWithTheVersionRecord) {
  MemoryFiles files;
  TensorBoardWriter writer(kPath, 0, files);
  const std::string data = std::string("\x09\0\0\0\0\0\0\0\0\x10\0\x1a\x0d", 13) + "brain.Event:2";
  const std::string& bytes = files.bytes(kPath);
  ASSERT_EQ(bytes.size(), 8 + 4 + data.size() + 4);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x1a\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(bytes.substr(12, data.size()), data);
}

TEST(TensorBoard, WhatIsWrittenIsDecoded) {
  MemoryFiles files;
  TensorBoardWriter writer(kPath, 1.5e9, files);
  writer.append({1.5e9 + 0.25, Step{.step = 300, .loss = 1.25, .lr = 3e-3, .skipped = true}});
  writer.append({1.5e9 + 1, Evaluation{.step = 301, .bits_per_base = 1.9}});
  writer.append({1.5e9 + 2, Message{.step = 301, .text = "no curve"}});
  const std::vector<Point> points = decode(files.bytes(kPath));
  ASSERT_EQ(points.size(), 3U);
  EXPECT_EQ(points[0].version, "brain.Event:2");
  EXPECT_EQ(points[0].time_s, 1.5e9);
  EXPECT_EQ(points[1].step, 300);
  EXPECT_EQ(points[1].time_s, 1.5e9 + 0.25);
  EXPECT_EQ(points[1].values.size(), 10U);
  EXPECT_EQ(points[1].values.at("train/loss"), 1.25F);
  EXPECT_EQ(points[1].values.at("train/lr"), 3e-3F);
  EXPECT_EQ(points[1].values.at("train/skipped"), 1.0F);
  EXPECT_EQ(points[2].step, 301);
  EXPECT_EQ(points[2].values.at("validation/bits_per_base"), 1.9F);
}

// Of log2 of magnitudes: 3 values from 2^-2 to 2^-1, 5 from 1 to 2.
TEST(TensorBoard, RangesAreHistogramsOfTheirExponents) {
  MemoryFiles files;
  TensorBoardWriter writer(kPath, 0, files);
  ValueRange range{.kind = "weight", .scope = "blocks.0", .name = "w"};
  range.smallest = 0.25;
  range.largest = 1;
  range.first_exponent = -2;
  range.exponents = {3, 0, 5};
  const ValueRange none{.kind = "update", .scope = "", .name = "w"};
  writer.append({1, Ranges{7, 1, {range, none}}});
  const Point point = decode(files.bytes(kPath)).at(1);
  EXPECT_EQ(point.step, 7);
  ASSERT_EQ(point.histograms.size(), 1U) << "zeros alone have no exponents";
  const Histogram& histogram = point.histograms.at("weight/blocks.0/w");
  EXPECT_EQ(histogram.limits, (std::vector<double>{-1, 0, 1}));
  EXPECT_EQ(histogram.counts, (std::vector<double>{3, 0, 5}));
  EXPECT_EQ(histogram.numbers,
            (std::map<uint64_t, double>{
                {1, -2}, {2, 0}, {3, 8}, {4, 3 * -1.5 + 5 * 0.5}, {5, 3 * 2.25 + 5 * 0.25}}));
}

TEST(TensorBoard, LargeStepsAndNonFiniteValuesSurvive) {
  MemoryFiles files;
  TensorBoardWriter writer(kPath, 0, files);
  const double inf = std::numeric_limits<double>::infinity();
  writer.scalars(int64_t{1} << 40, 0, {{"a", inf}, {"b", std::nan("")}, {"", -0.0}});
  const Point point = decode(files.bytes(kPath)).at(1);
  EXPECT_EQ(point.step, int64_t{1} << 40);
  EXPECT_EQ(point.values.at("a"), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(point.values.at("b")));
  EXPECT_TRUE(std::signbit(point.values.at("")));
}

TEST(TensorBoard, ReplacesTheFileOfAnEarlierStart) {
  MemoryFiles files;
  TensorBoardWriter(kPath, 0, files).scalars(1, 0, {{"a", 1}});
  TensorBoardWriter(kPath, 0, files).scalars(2, 0, {{"a", 2}});
  const std::vector<Point> points = decode(files.bytes(kPath));
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[1].step, 2);
}

TEST(TensorBoard, ANameThatWouldNotBeFoundIsRefused) {
  MemoryFiles files;
  try {
    TensorBoardWriter writer("/curves", 0, files);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "tensorboard: file name \"curves\" would not be found; it must contain "
                 "\"tfevents\"");
  }
}

}  // namespace
}  // namespace mantissa::record
