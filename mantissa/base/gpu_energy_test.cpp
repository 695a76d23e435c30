#include "mantissa/base/gpu_energy.h"

#include <cstdlib>

#include <gmock/gmock.h>

#include "mantissa/base/energy_meter.h"
#include "mantissa/base/scratch_folder.h"

namespace mantissa {
namespace {

using testing::HasSubstr;

// MANTISSA_PLANTED_NVML is a library that counts as NVML does, over a file of this test.
class GpuEnergyTest : public testing::Test {
 protected:
  GpuEnergyTest() { setenv("PLANTED_NVML", (folder_ / "gpus").c_str(), 1); }
  ~GpuEnergyTest() override { unsetenv("PLANTED_NVML"); }

  void count(const std::string& millijoules) const { folder_.write("gpus", millijoules); }

  // A processor package beside the GPUs.
  void count_package(uint64_t microjoules) const {
    std::filesystem::create_directories(folder_ / "intel-rapl:0");
    folder_.write("intel-rapl:0/name", "package-0\n");
    folder_.write("intel-rapl:0/max_energy_range_uj", "262143328850\n");
    folder_.write("intel-rapl:0/energy_uj", std::to_string(microjoules) + "\n");
  }

  EnergyMeter meter() const { return EnergyMeter({folder_.path(), MANTISSA_PLANTED_NVML}); }

  ScratchFolder folder_;
};

TEST_F(GpuEnergyTest, SumsWhatTheCountersOfAllGpusSay) {
  count("5000\n18446744073709551000\n");
  GpuEnergy energy(MANTISSA_PLANTED_NVML);
  EXPECT_EQ(energy.problem(), "");
  EXPECT_EQ(energy.gpus(), 2);
  EXPECT_EQ(energy.sample(), 0);
  count("7500\n18446744073709551500\n");
  EXPECT_DOUBLE_EQ(energy.sample(), 3);
  EXPECT_DOUBLE_EQ(energy.sample(), 3);
}

TEST_F(GpuEnergyTest, SaysWhyNothingIsMeasured) {
  EXPECT_THAT(GpuEnergy("libabsent-ml.so.1").problem(),
              HasSubstr("libabsent-ml.so.1: cannot open shared object file"));
  EXPECT_THAT(GpuEnergy("libdl.so.2").problem(), HasSubstr("undefined symbol: nvmlInit_v2"));
  const std::string library = MANTISSA_PLANTED_NVML;
  count("");
  EXPECT_EQ(GpuEnergy(library).problem(), library + ": it finds no GPU");
  count("5000\nnone\n");
  GpuEnergy some(library);
  EXPECT_EQ(some.problem(),
            library + ": GPU 1: nvmlDeviceGetTotalEnergyConsumption: Not Supported");
  EXPECT_EQ(some.gpus(), 0);
  EXPECT_EQ(some.sample(), 0);
  unsetenv("PLANTED_NVML");
  EXPECT_EQ(GpuEnergy(library).problem(), library + ": nvmlInit_v2: Driver Not Loaded");
}

TEST_F(GpuEnergyTest, ACounterThatGoesBackEndsIt) {
  count("5000\n");
  GpuEnergy energy(MANTISSA_PLANTED_NVML);
  count("100\n");
  EXPECT_EQ(energy.sample(), 0);
  EXPECT_THAT(energy.problem(), HasSubstr("GPU 0: its counter went back from 5000 to 100 mJ"));
}

TEST_F(GpuEnergyTest, IsAddedToThatOfThePackagesAndToldOf) {
  count("5000\n1000\n");
  count_package(1'000'000);
  EnergyMeter both = meter();
  EXPECT_EQ(both.problem(), "");
  EXPECT_EQ(both.measured(), "1 processor package and 2 GPUs");
  count("6000\n1500\n");
  count_package(3'000'000);
  EXPECT_DOUBLE_EQ(both.sample(), 3.5);

  count("none\nnone\n");
  EXPECT_DOUBLE_EQ(both.sample(), 3.5);
  EXPECT_THAT(both.problem(), HasSubstr("GPU 0: nvmlDeviceGetTotalEnergyConsumption"));
  EXPECT_EQ(both.measured(), "");
}

TEST_F(GpuEnergyTest, EitherAloneIsMeasured) {
  count("5000\n");
  EnergyMeter of_gpu = meter();
  EXPECT_EQ(of_gpu.problem(), "");
  EXPECT_EQ(of_gpu.measured(), "1 GPU");
  count("5250\n");
  EXPECT_DOUBLE_EQ(of_gpu.sample(), 0.25);

  count_package(0);
  count("none\n");
  EXPECT_EQ(meter().problem(), "");
  EXPECT_EQ(meter().measured(), "1 processor package");
  std::filesystem::remove_all(folder_ / "intel-rapl:0");
  EXPECT_THAT(meter().problem(), HasSubstr("has no zone of a processor package (intel-rapl:N); "));
  EXPECT_THAT(meter().problem(), HasSubstr("GPU 0: nvmlDeviceGetTotalEnergyConsumption: Not"));
}

}  // namespace
}  // namespace mantissa
