#include "mantissa/train/device_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa::train {
namespace {

using numerics::Format;
using ::testing::HasSubstr;
using ::testing::Throws;
using ::testing::ThrowsMessage;

TEST(DeviceSpec, ShipsTheDevicesPeopleTrainOnWithASourceForEachNumber) {
  for (const char* name : {"V100", "A100-40GB", "A100-80GB", "H100", "H200", "MI250X", "MI300X",
                           "Gaudi-2", "Gaudi-3", "Max-1550", "TPU-v4", "TPU-v5e"}) {
    const DeviceSpec& device = find_device(shipped_devices(), name);
    EXPECT_GE(device.memory.value, 16e9) << name;
    EXPECT_GE(device.bandwidth.value, 8e11) << name;
    EXPECT_FALSE(device.memory.source.empty() || device.bandwidth.source.empty()) << name;
    EXPECT_TRUE(device.flops.contains(Format::bf16) || device.flops.contains(Format::fp16)) << name;
    for (const auto& [format, figure] : device.flops) {
      EXPECT_GE(figure.value, 1e13) << name;
      EXPECT_LE(figure.value, 1e16) << name;
      EXPECT_FALSE(figure.source.empty()) << name;
    }
  }
}

// Twice the rate is with every second number of four zero, which training has not.
TEST(DeviceSpec, RatesAreThoseOfDenseProducts) {
  EXPECT_EQ(find_device(shipped_devices(), "A100-40GB").flops.at(Format::bf16).value, 312e12);
  EXPECT_EQ(find_device(shipped_devices(), "H100").flops.at(Format::bf16).value, 989.5e12);
}

TEST(DeviceSpec, IsFoundInAnyCase) {
  EXPECT_EQ(find_device(shipped_devices(), "a100 40gb").name, "A100-40GB");
  EXPECT_EQ(find_device(shipped_devices(), "gaudi2").name, "Gaudi-2");
  EXPECT_THAT([] { (void)find_device(shipped_devices(), "H1000"); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("--device: unknown device \"H1000\"; did you mean \"H100\"?")));
  EXPECT_THAT([] { (void)find_device(shipped_devices(), "a100", "--devices"); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("--devices: unknown device \"a100\"; valid: A100-40GB A100-80GB")));
}

constexpr const char* kRest =
    "memory = { value = 1e9, source = \"s\" }\nbandwidth = { value = 1e9, source = \"s\" }\n";

std::vector<DeviceSpec> parse(const std::string& lines) {
  return parse_devices(concat("[[device]]\nname = \"x\"\n", kRest, lines), "my.toml");
}

TEST(DeviceSpec, ReadsATableOfOnesOwn) {
  const DeviceSpec device = parse("fp32 = { value = 1e11, source = \"measured\" }")[0];
  EXPECT_EQ(device.flops.at(Format::fp32).value, 1e11);
  EXPECT_EQ(device.flops.at(Format::fp32).source, "measured");
}

TEST(DeviceSpec, RefusesWhatIsNotWhole) {
  const auto refuses = [](const std::string& lines, const char* message) {
    EXPECT_THAT([&] { (void)parse(lines); }, ThrowsMessage<InvalidArgument>(HasSubstr(message)));
  };
  refuses("fp16 = 3e12", "my.toml: device 0.fp16 is not { value = NUMBER, source = \"DOCUMENT\" }");
  refuses("fp16 = { value = 3e12, source = \"\" }", "write both");
  refuses("fp16 = { value = 0, source = \"s\" }", "device 0.fp16: value is 0; it must be positive");
  refuses("bf61 = { value = 1, source = \"s\" }",
          "device 0.bf61: unknown key; did you mean \"bf16\"?");
  refuses("note = 3", "device 0.note is no text; write it in quotes");
  refuses("fp16 = ", "my.toml:5: ");
  EXPECT_THAT([] { (void)parse_devices("[[device]]\nname = \"x\"\n", "my.toml"); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("my.toml: device 0: lacks a name, memory or bandwidth")));
  EXPECT_THAT([] { (void)parse_devices("name = \"x\"\n", "my.toml"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("my.toml: holds no list of devices alone")));
}

}  // namespace
}  // namespace mantissa::train
