#include "mantissa/tensor/safetensors.h"

#include <cstring>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/faulty_files.h"
#include "mantissa/base/memory_files.h"
#include "mantissa/base/random.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::tensor {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

constexpr at::ScalarType kAll[] = {at::kDouble,        at::kFloat,       at::kHalf, at::kBFloat16,
                                   at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kLong, at::kInt,
                                   at::kShort,         at::kChar,        at::kByte, at::kBool};

// One tensor of each dtype, of random bits: NaNs with payloads too.
Tensors one_of_each(uint64_t seed) {
  Random random(seed, 0);
  Tensors tensors;
  for (const at::ScalarType dtype : kAll) {
    const at::Tensor tensor = at::zeros({3, 5}, dtype);
    auto* bytes = static_cast<uint8_t*>(tensor.mutable_data_ptr());
    for (size_t i = 0; i < tensor.nbytes(); ++i) {
      bytes[i] = static_cast<uint8_t>(random.below(dtype == at::kBool ? 2 : 256));
    }
    tensors[std::string("blocks.0.") + c10::toString(dtype)] = tensor;
  }
  tensors["empty"] = at::zeros({4, 0, 2}, at::kHalf);
  tensors["scalar"] = at::ones({}, at::kFloat);
  return tensors;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

std::string message_of(const std::string& bytes) {
  MemoryFiles files;
  replace_file("/f", bytes, files);
  try {
    (void)read_safetensors("/f", files);
  } catch (const Corruption& error) {
    return error.what();
  }
  return "accepted";
}

std::string file_of(const Tensors& tensors) {
  MemoryFiles files;
  write_safetensors("/f", tensors, {}, files);
  return files.bytes("/f");
}

std::string with_header(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

TEST(Safetensors, EveryDtypeReadsBackBitForBit) {
  const uint64_t seed = 3;
  SCOPED_TRACE(seed);
  const Tensors tensors = one_of_each(seed);
  MemoryFiles files;
  const SafetensorsDigest digest = write_safetensors("/f", tensors, {{"format", "pt"}}, files);
  const Safetensors read = read_safetensors("/f", files);
  EXPECT_EQ(read.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(same_bits(read.tensors.at(name), tensor)) << name;
  }
  EXPECT_EQ(read.metadata.at("format"), "pt");
  EXPECT_EQ(read.digest, digest);
  EXPECT_EQ(files.num_open(), 0U);
}

TEST(Safetensors, TheBytesAreThoseOfTheFormat) {
  const std::string header = R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("a":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  ASSERT_EQ(header.size() % 8, 2U);
  const std::string bytes =
      file_of({{"a", at::arange(1, 3, at::kByte)}, {"b", at::ones({1}, at::kFloat)}});
  EXPECT_EQ(bytes, with_header(header + "      ", std::string("\0\0\x80\x3f\x01\x02", 6)));
}

TEST(Safetensors, DigestsAreOfTheBytesOnDisk) {
  MemoryFiles files;
  const at::Tensor tensor = at::arange(5, at::kFloat);
  const SafetensorsDigest digest = write_safetensors("/f", {{"a", tensor}}, {}, files);
  const std::string& bytes = files.bytes("/f");
  EXPECT_EQ(digest.size_bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(digest.xxh3, xxh3(bytes));
  EXPECT_EQ(digest.tensors_xxh3.at("a"), xxh3(bytes.substr(bytes.size() - 20)));
}

TEST(Safetensors, EachTensorIsAlignedToItsElements) {
  const std::string bytes = file_of(one_of_each(1));
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ((8 + length) % 8, 0U);
}

TEST(Safetensors, ViewsAreWrittenRowMajor) {
  const at::Tensor matrix = at::arange(6, at::kFloat).view({2, 3});
  MemoryFiles files;
  write_safetensors("/f", {{"t", matrix.t()}, {"e", matrix.narrow(0, 0, 1).expand({4, 3})}}, {},
                    files);
  const Safetensors read = read_safetensors("/f", files);
  EXPECT_TRUE(at::equal(read.tensors.at("t"), matrix.t()));
  EXPECT_TRUE(at::equal(read.tensors.at("e"), matrix.narrow(0, 0, 1).expand({4, 3})));
}

TEST(Safetensors, NoTensorsAtAllAreAFile) { EXPECT_EQ(message_of(file_of({})), "accepted"); }

TEST(Safetensors, RefusesWhatTheFormatDoesNotHave) {
  const auto message = [](const Tensors& tensors) {
    MemoryFiles files;
    try {
      write_safetensors("/f", tensors, {}, files);
    } catch (const InvalidArgument& error) {
      EXPECT_TRUE(list_folder("/", files).empty());
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({{"z", at::zeros({1}, at::kComplexFloat)}}),
            "safetensors /f: tensor \"z\" is ComplexFloat; valid: F64 F32 F16 BF16 F8_E4M3 F8_E5M2 "
            "I64 I32 I16 I8 U8 BOOL");
  EXPECT_EQ(message({{"u", at::Tensor()}}),
            "safetensors /f: tensor \"u\" is undefined or sparse; give dense tensors");
  EXPECT_NE(message({{"__metadata__", at::ones({1})}}), "accepted");
}

TEST(Safetensors, DoesNotOverwrite) {
  MemoryFiles files;
  write_safetensors("/f", {{"a", at::ones({1})}}, {}, files);
  EXPECT_THROW(write_safetensors("/f", {{"a", at::zeros({1})}}, {}, files), IoError);
  EXPECT_EQ(read_safetensors("/f", files).tensors.at("a").item<float>(), 1);
}

TEST(Safetensors, AFailedWriteLeavesNoFileAndNoDescriptor) {
  for (int64_t call = 0; call < 6; ++call) {
    SCOPED_TRACE(call);
    MemoryFiles memory;
    FaultyFiles files(memory, {.at_call = call});
    EXPECT_THROW(write_safetensors("/f", {{"a", at::ones({1})}}, {}, files), IoError);
    EXPECT_TRUE(list_folder("/", memory).empty());
    EXPECT_EQ(memory.num_open(), 0U);
  }
}

TEST(Safetensors, DamageIsNamed) {
  EXPECT_EQ(message_of("1234567"),
            "safetensors /f: has 7 bytes, at least 8 are needed; it is not a safetensors file, or "
            "cut");
  EXPECT_EQ(message_of("\xff\xff\xff\xff\xff\xff\xff\xff"),
            "safetensors /f: a header of 18446744073709551615 bytes, at most 100000000 are valid; "
            "it is not a safetensors file, or damaged");
  EXPECT_EQ(message_of(with_header("{}", "").substr(0, 9)),
            "safetensors /f: a header of 2 bytes, the file has 1 behind its length; it is cut, use "
            "another copy");
  EXPECT_EQ(message_of(with_header(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})",
                                   "\x01\x02")),
            "safetensors /f: tensor \"a\" has byte 2 for a bool; the file is damaged, use another "
            "copy");
}

TEST(Safetensors, ACutAtAnyLengthIsCorruption) {
  const std::string bytes = file_of(one_of_each(2));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(message_of(bytes.substr(0, size)), "accepted") << "cut to " << size;
  }
  EXPECT_NE(message_of(bytes + "x"), "accepted");
}

// Without a manifest a changed value cannot be seen, but any byte of a file may be anything.
TEST(Safetensors, AnyByteMayBeAnything) {
  const uint64_t seed = 4;
  SCOPED_TRACE(seed);
  Random random(seed, 0);
  const std::string bytes = file_of({{"a", at::arange(3, at::kFloat)},
                                     {"b", at::ones({2}, at::kBool)},
                                     {"c", at::zeros({0, 2}, at::kLong)}});
  int64_t num_refused = 0;
  for (size_t position = 0; position < bytes.size(); ++position) {
    for (int i = 0; i < 64; ++i) {
      std::string changed = bytes;
      changed[position] = static_cast<char>(i < 8 ? changed[position] ^ 1 << i : random.below(256));
      num_refused += message_of(changed) == "accepted" ? 0 : 1;
    }
  }
  EXPECT_GT(num_refused, 1000);
}

TEST(Safetensors, AHostileSizeAllocatesNothing) {
  memory::install_counting_allocator();
  memory::reset_peak();
  const int64_t before = memory::peak_bytes().total();
  EXPECT_NE(
      message_of(with_header(
          R"({"a":{"dtype":"U8","shape":[1099511627776],"data_offsets":[0,1099511627776]}})", "")),
      "accepted");
  EXPECT_EQ(memory::peak_bytes().total(), before);
}

// Reading and writing take what the tensors take, once.
TEST(Safetensors, TakesNoMoreMemoryThanTheTensors) {
  memory::install_counting_allocator();
  MemoryFiles files;
  const at::Tensor tensor = at::zeros({1000}, at::kFloat);
  memory::reset_peak();
  const int64_t before = memory::peak_bytes().total();
  write_safetensors("/f", {{"a", tensor}, {"b", tensor}}, {}, files);
  EXPECT_EQ(memory::peak_bytes().total(), before);
  const Safetensors read = read_safetensors("/f", files);
  EXPECT_EQ(memory::peak_bytes().total(), before + 2 * 4000);
}

}  // namespace
}  // namespace mantissa::tensor
