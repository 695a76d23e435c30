#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

/// A folder that is removed at the end, with a run file in it that trains in milliseconds a step.
class TinyRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            concat("mantissa_train_", ::getpid(), "_",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  RunConfig config(std::vector<Setting> settings = {}) const {
    const std::filesystem::path file = root_ / "tiny.toml";
    std::ofstream(file) << "[data]\nfasta = \"" MANTISSA_SOURCE_DIR
                           "/data/lambda.fa\"\n"
                           "validation = [\"NC_001416.1:47653-48502\"]\ncontext = 32\n"
                           "[model]\nlayers = 1\nwidth = 16\nheads = 2\n"
                           "[train]\nsteps = 9\nbatch = 4\neval_every = 4\n"
                           "[optim]\nlr = 1e-2\nwarmup = 2\n";
    return load_run_config(file, settings);
  }

  std::filesystem::path root_;
};

}  // namespace mantissa::train
