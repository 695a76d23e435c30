#include "mantissa/base/energy_meter.h"

#include <fstream>

#include <gmock/gmock.h>

#include "mantissa/base/scratch_folder.h"

namespace mantissa {
namespace {

using testing::HasSubstr;

// A tree like that of Linux on a machine with two packages.
class EnergyMeterTest : public testing::Test {
 protected:
  void plant(const std::string& zone, const std::string& name, uint64_t energy_uj) const {
    std::filesystem::create_directories(root_ / zone);
    write(zone + "/name", name);
    write(zone + "/max_energy_range_uj", std::to_string(kRange));
    write(zone + "/energy_uj", std::to_string(energy_uj));
  }

  void write(const std::string& file, const std::string& text) const {
    std::ofstream(root_ / file) << text << "\n";
  }

  void count(const std::string& zone, uint64_t energy_uj) const {
    write(zone + "/energy_uj", std::to_string(energy_uj));
  }

  static constexpr uint64_t kRange = 262'143'328'850;

  ScratchFolder scratch_;
  std::filesystem::path root_ = scratch_.path();
};

TEST_F(EnergyMeterTest, SumsPackagesAndNothingThatIsPartOfThemOrMoreThanThem) {
  std::filesystem::create_directories(root_ / "intel-rapl");  // the control type itself
  plant("intel-rapl:0", "package-0", 1'000'000);
  plant("intel-rapl:1", "package-1", 5'000'000);
  plant("intel-rapl:0:0", "core", 100);
  plant("intel-rapl:0:1", "dram", 100);
  plant("intel-rapl:2", "psys", 100);
  plant("intel-rapl-mmio:0", "package-0", 100);  // the same package by another way
  EnergyMeter meter({root_, ""});
  EXPECT_EQ(meter.problem(), "");
  EXPECT_EQ(meter.packages(), 2);
  EXPECT_EQ(meter.sample(), 0);
  count("intel-rapl:0", 3'500'000);
  count("intel-rapl:1", 6'000'000);
  for (const char* zone :
       {"intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:2", "intel-rapl-mmio:0"}) {
    count(zone, 90'000'000);
  }
  EXPECT_DOUBLE_EQ(meter.sample(), 3.5);
  count("intel-rapl:0", 4'500'000);
  EXPECT_DOUBLE_EQ(meter.sample(), 4.5);
}

TEST_F(EnergyMeterTest, ACounterThatWentBackHasWrapped) {
  plant("intel-rapl:0", "package-0", kRange - 999'999);
  EnergyMeter meter({root_, ""});
  count("intel-rapl:0", 2'000'000);  // 1 J to the end with the step to 0, 2 J since
  EXPECT_DOUBLE_EQ(meter.sample(), 3);
  count("intel-rapl:0", 2'500'000);
  EXPECT_DOUBLE_EQ(meter.sample(), 3.5);
}

TEST_F(EnergyMeterTest, SaysWhyNothingIsMeasured) {
  EXPECT_EQ(EnergyMeter({root_, ""}).problem(),
            root_.string() + ": has no zone of a processor package (intel-rapl:N)");
  EXPECT_THAT(EnergyMeter({root_ / "absent", ""}).problem(), HasSubstr("absent: has no zone"));
  plant("intel-rapl:0", "package-0", 0);
  write("intel-rapl:0/energy_uj", "many");
  EXPECT_THAT(EnergyMeter({root_, ""}).problem(),
              HasSubstr("energy_uj: holds \"many\", not a count of microjoules"));
  // Even root cannot read a folder as a file.
  std::filesystem::remove(root_ / "intel-rapl:0/energy_uj");
  std::filesystem::create_directory(root_ / "intel-rapl:0/energy_uj");
  EnergyMeter meter({root_, ""});
  EXPECT_THAT(meter.problem(), HasSubstr("energy_uj: cannot be read; only root may"));
  EXPECT_EQ(meter.sample(), 0);
}

TEST_F(EnergyMeterTest, ACounterThatFailsLaterIsToldOf) {
  plant("intel-rapl:0", "package-0", 0);
  EnergyMeter meter({root_, ""});
  EXPECT_EQ(meter.problem(), "");
  std::filesystem::remove(root_ / "intel-rapl:0/energy_uj");
  meter.sample();
  EXPECT_THAT(meter.problem(), HasSubstr("energy_uj: cannot be read"));
}

}  // namespace
}  // namespace mantissa
