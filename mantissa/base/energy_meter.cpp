#include "mantissa/base/energy_meter.h"

#include <charconv>
#include <fstream>
#include <regex>
#include <system_error>

#include "mantissa/base/error.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;

// These files have no size, so they are read as a line.
std::string read_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  MANTISSA_CHECK(in.good() || in.eof(), IoError, file.string(),
                 ": cannot be read; only root may read these counters on most systems");
  return line;
}

uint64_t read_count(const fs::path& file) {
  const std::string text = read_line(file);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  MANTISSA_CHECK(error == std::errc() && end == text.data() + text.size(), IoError, file.string(),
                 ": holds \"", text, "\", not a count of microjoules");
  return value;
}

std::vector<fs::path> package_zones(const fs::path& root) {
  static const std::regex top_level("intel-rapl:[0-9]+");
  std::vector<fs::path> zones;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, ignored)) {
    if (std::regex_match(entry.path().filename().string(), top_level) &&
        fs::exists(entry.path() / "name", ignored) &&
        read_line(entry.path() / "name").starts_with("package")) {
      zones.push_back(entry.path());
    }
  }
  return zones;
}

}  // namespace

EnergyMeter::EnergyMeter(const EnergyCounters& counters) {
  try {
    for (const fs::path& folder : package_zones(counters.powercap)) {
      zones_.push_back(
          {folder, read_count(folder / "max_energy_range_uj"), read_count(folder / "energy_uj")});
    }
    if (zones_.empty()) {
      problem_ =
          concat(counters.powercap.string(), ": has no zone of a processor package (intel-rapl:N)");
    }
  } catch (const IoError& error) {
    problem_ = error.what();
    zones_.clear();
  }
  if (counters.nvml.empty()) {
    return;
  }
  gpus_.emplace(counters.nvml);
  if (gpus_->problem().empty()) {
    problem_.clear();
  } else {
    problem_ += problem_.empty() ? "" : concat("; ", gpus_->problem());
    gpus_.reset();
  }
}

double EnergyMeter::sample() {
  try {
    for (Zone& zone : zones_) {
      const uint64_t now = read_count(zone.folder / "energy_uj");
      const uint64_t past_end = now < zone.last_uj ? zone.range_uj + 1 : 0;
      joules_ += static_cast<double>(now + past_end - zone.last_uj) * 1e-6;
      zone.last_uj = now;
    }
  } catch (const IoError& error) {
    end(error.what());
  }
  if (gpus_) {
    gpu_joules_ = gpus_->sample();
    if (!gpus_->problem().empty()) {
      end(gpus_->problem());
    }
  }
  return joules_ + gpu_joules_;
}

std::string EnergyMeter::measured() const {
  if (!problem_.empty()) {
    return "";
  }
  const auto counted = [](int number, const char* what) {
    return number == 0 ? std::string() : concat(number, " ", what, number == 1 ? "" : "s");
  };
  const std::string of_packages = counted(packages(), "processor package");
  const std::string of_gpus = counted(gpus(), "GPU");
  return concat(of_packages, of_packages.empty() || of_gpus.empty() ? "" : " and ", of_gpus);
}

void EnergyMeter::end(const std::string& problem) {
  problem_ = problem;
  zones_.clear();
  gpus_.reset();
}

}  // namespace mantissa
