#include "mantissa/record/tensorboard.h"

#include <bit>
#include <cmath>
#include <string_view>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"

// The file is a sequence of TFRecords (tensorflow/core/lib/io/record_writer.h):
//   uint64 length | uint32 masked CRC-32C of these 8 bytes | data | uint32 masked CRC-32C of data
// all little-endian. Data is a protocol buffer Event (tensorflow/core/util/event.proto):
//   1 double wall_time | 2 int64 step | 3 string file_version, or 5 Summary
//   Summary: repeated 1 Value;  Value: 1 string tag | 2 float simple_value, or 5 HistogramProto
//   HistogramProto (tensorflow/core/framework/summary.proto): 1 double min | 2 double max |
//   3 double num | 4 double sum | 5 double sum_squares | 6 packed double bucket_limit |
//   7 packed double bucket
namespace mantissa::record {
namespace {

// A field's key is its number shifted by three, and one of these.
enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename Unsigned>
void put_little_endian(std::string& out, Unsigned value) {
  for (size_t i = 0; i < sizeof(Unsigned); ++i) {
    out += static_cast<char>(value >> (8 * i) & 0xFF);
  }
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    out += static_cast<char>(value | 0x80);
  }
  out += static_cast<char>(value);
}

void put_key(std::string& out, uint32_t number, WireType type) {
  put_varint(out, number << 3 | type);
}

void put_bytes(std::string& out, uint32_t number, std::string_view bytes) {
  put_key(out, number, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_header(double time_s, int64_t step) {
  std::string event;
  put_key(event, 1, kFixed64);
  put_little_endian(event, std::bit_cast<uint64_t>(time_s));
  put_key(event, 2, kVarint);
  put_varint(event, static_cast<uint64_t>(step));
  return event;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

std::string framed(std::string_view data) {
  std::string record;
  put_little_endian(record, uint64_t{data.size()});
  put_little_endian(record, masked_crc32c(record));
  record += data;
  put_little_endian(record, masked_crc32c(data));
  return record;
}

void put_double(std::string& out, uint32_t number, double value) {
  put_key(out, number, kFixed64);
  put_little_endian(out, std::bit_cast<uint64_t>(value));
}

// Of log2 of the magnitudes that are finite and not 0; sums take the middle of each exponent.
std::string histogram_of(const ValueRange& range) {
  double num = 0;
  double sum = 0;
  double sum_squares = 0;
  std::string limits;
  std::string buckets;
  for (size_t i = 0; i < range.exponents.size(); ++i) {
    const double low = static_cast<double>(range.first_exponent) + static_cast<double>(i);
    const auto count = static_cast<double>(range.exponents[i]);
    num += count;
    sum += count * (low + 0.5);
    sum_squares += count * (low + 0.5) * (low + 0.5);
    put_little_endian(limits, std::bit_cast<uint64_t>(low + 1));
    put_little_endian(buckets, std::bit_cast<uint64_t>(count));
  }
  std::string histogram;
  put_double(histogram, 1, std::log2(range.smallest));
  put_double(histogram, 2, std::log2(range.largest));
  put_double(histogram, 3, num);
  put_double(histogram, 4, sum);
  put_double(histogram, 5, sum_squares);
  put_bytes(histogram, 6, limits);
  put_bytes(histogram, 7, buckets);
  return histogram;
}

std::string tag_of(const ValueRange& range) {
  return range.kind + "/" + (range.scope.empty() ? "" : range.scope + "/") + range.name;
}

OutputFile replaced(const std::filesystem::path& path, FileSystem& files) {
  MANTISSA_CHECK(path.filename().string().find("tfevents") != std::string::npos, InvalidArgument,
                 "tensorboard: file name \"", path.filename().string(),
                 "\" would not be found; it must contain \"tfevents\"");
  remove_tree(path, files);
  return OutputFile(path, FileSystem::Open::create, files);
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& path, double time_s,
                                     FileSystem& files)
    : file_(replaced(path, files)) {
  std::string event = event_header(time_s, 0);
  put_bytes(event, 3, "brain.Event:2");
  file_.write_whole(framed(event));
}

void TensorBoardWriter::append(const Entry& entry) {
  if (const Step* step = std::get_if<Step>(&entry.event)) {
    scalars(step->step, entry.time_s,
            {{"train/loss", step->loss},
             {"train/bits_per_base", step->bits_per_base},
             {"train/lr", step->lr},
             {"train/grad_norm", step->grad_norm},
             {"train/scale", step->scale},
             {"train/skipped", step->skipped ? 1 : 0},
             {"train/tokens_per_s", step->tokens_per_s},
             {"train/step_time_s", step->step_time_s},
             {"train/data_wait_s", step->data_wait_s},
             {"train/peak_bytes", static_cast<double>(step->peak_bytes)}});
  } else if (const Evaluation* evaluation = std::get_if<Evaluation>(&entry.event)) {
    scalars(evaluation->step, entry.time_s,
            {{"validation/bits_per_base", evaluation->bits_per_base},
             {"validation/loss", evaluation->loss}});
  } else if (const Ranges* ranges = std::get_if<Ranges>(&entry.event)) {
    histograms(*ranges, entry.time_s);
  }
}

void TensorBoardWriter::histograms(const Ranges& ranges, double time_s) {
  std::string summary;
  for (const ValueRange& range : ranges.values) {
    if (!range.exponents.empty()) {
      std::string value;
      put_bytes(value, 1, tag_of(range));
      put_bytes(value, 5, histogram_of(range));
      put_bytes(summary, 1, value);
    }
  }
  write_summary(ranges.step, time_s, summary);
}

void TensorBoardWriter::scalars(int64_t step, double time_s,
                                const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string value;
    put_bytes(value, 1, tag);
    put_key(value, 2, kFixed32);
    put_little_endian(value, std::bit_cast<uint32_t>(static_cast<float>(number)));
    put_bytes(summary, 1, value);
  }
  write_summary(step, time_s, summary);
}

void TensorBoardWriter::write_summary(int64_t step, double time_s, const std::string& summary) {
  std::string event = event_header(time_s, step);
  put_bytes(event, 5, summary);
  file_.write_whole(framed(event));
}

}  // namespace mantissa::record
