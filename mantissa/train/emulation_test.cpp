#include "mantissa/amp/emulation.h"

#include <optional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/ops/tf32.h"

namespace mantissa::train {
namespace {

// Our kernels round FP32 factors to TF32 first, which leaves numbers of FP16 and BF16 as they are,
// and sum in the order of the 16-bit kernels: so emulation is these, bit for bit.
TEST(EmulationOnOurKernels, IsOur16BitProductBitForBitForwardAndBackward) {
  ops::install_cpu_kernels();
  const ops::CpuKernelsGuard ours(ops::CpuKernels::ours);
  at::set_num_threads(1);
  at::manual_seed(17);
  const ops::Tf32Guard tf32(ops::Tf32::on);
  for (const char* name : {"fp16", "bf16"}) {
    for (const auto& [rows, inner, columns] :
         {std::array<int64_t, 3>{33, 257, 70}, {128, 512, 96}}) {
      const at::Tensor a = at::randn({rows, inner}).requires_grad_();
      const at::Tensor b = at::randn({inner, columns}).requires_grad_();
      const at::Tensor seed = at::randn({rows, columns});
      const auto run = [&](bool emulates) {
        std::vector<at::Tensor> results;
        {
          std::optional<amp::Emulation> emulation;
          if (emulates) {
            emulation.emplace(numerics::parse_format(name));
          }
          const amp::Autocast region(amp::parse_policy(std::string("torch-fixed compute=") + name));
          results.push_back(at::mm(a, b));
        }
        EXPECT_EQ(results[0].scalar_type() == at::kFloat, emulates);
        results[0] = results[0].to(at::kFloat);
        results[0].mul(seed).sum().backward();
        for (const at::Tensor& leaf : {a, b}) {
          results.push_back(leaf.grad());
          leaf.mutable_grad() = at::Tensor();
        }
        return results;
      };
      const std::vector<at::Tensor> real = run(false);
      const std::vector<at::Tensor> emulated = run(true);
      for (size_t i = 0; i < real.size(); ++i) {
        EXPECT_TRUE(at::equal(real[i], emulated[i])) << name << " " << rows << " result " << i;
      }
    }
  }
}

}  // namespace
}  // namespace mantissa::train
