#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "mantissa/base/scratch_folder.h"
#include "mantissa/checkpoint/reader.h"
#include "mantissa/tensor/state_dict.h"
#include "mantissa/train/run_config.h"

namespace mantissa::train {

/// A folder with a run file in it that trains in milliseconds a step.
class TinyRunTest : public ::testing::Test {
 protected:
  // On tensors this small threads only wait for each other, and long when other processes compute.
  TinyRunTest() { at::set_num_threads(1); }

  RunConfig config(const std::vector<Setting>& settings = {}) const {
    const std::filesystem::path file =
        root_.write("tiny.toml", "[data]\nfasta = \"" MANTISSA_SOURCE_DIR
                                 "/data/lambda.fa\"\n"
                                 "validation = [\"NC_001416.1:47653-48502\"]\ncontext = 32\n"
                                 "[model]\nlayers = 1\nwidth = 16\nheads = 2\n"
                                 "[train]\nsteps = 9\nbatch = 4\neval_every = 4\n"
                                 "[optim]\nlr = 1e-2\nwarmup = 2\n");
    return load_run_config(file, settings);
  }

  static tensor::StateDict final_state(const std::filesystem::path& folder) {
    return checkpoint::read_latest(folder / "checkpoints").checkpoint.state;
  }

  static void expect_equal(const tensor::StateDict& a, const tensor::StateDict& b) {
    ASSERT_EQ(a.tensors().size(), b.tensors().size());
    for (const auto& [name, tensor] : a.tensors()) {
      EXPECT_TRUE(at::equal(tensor, b.tensor(name))) << name;
    }
    EXPECT_EQ(a.scalars(), b.scalars());
  }

  ScratchFolder root_;
};

}  // namespace mantissa::train
