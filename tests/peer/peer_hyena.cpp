// peer_hyena INPUT OUTPUT: what our Hyena makes of the weights and tokens of
// tests/peer/hyena_test.py, in FP64 and FP32: logits, loss, and gradients under the names of the
// weights there. The metadata have the numbers of parameters of HyenaDNA's sizes.

#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include <ATen/Parallel.h>

#include "mantissa/models/foreign_weights.h"
#include "mantissa/models/hyena.h"
#include "mantissa/ops/install_cpu_kernels.h"
#include "mantissa/tensor/safetensors.h"

namespace mantissa {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

void run(const tensor::Safetensors& input, const std::string& prefix, at::ScalarType dtype,
         Tensors& output) {
  const auto integer = [&](const char* name) { return std::stoll(input.metadata.at(name)); };
  const models::Hyena model(
      {.vocabulary = 16,
       .layers = integer("layers"),
       .width = integer("width"),
       .filter = {.positions = integer("positions"),
                  .decay_shift = std::stod(input.metadata.at("decay_shift"))}},
      1);
  Tensors weights;
  for (const auto& [name, value] : input.tensors) {
    if (name.starts_with("weights.")) {
      weights[name.substr(8)] = value;
    }
  }
  models::load_foreign_weights(model.parameters(), weights, models::hyenadna_names());
  for (const tensor::Parameter& parameter : model.parameters()) {
    parameter.value.set_data(parameter.value.detach().to(dtype));
  }
  const at::Tensor& tokens = input.tensors.at("tokens");
  const at::Tensor loss = model.loss(tokens, input.tensors.at("targets"));
  loss.backward();
  output[prefix + "loss"] = loss.detach();
  output[prefix + "logits"] = model.forward(tokens).detach();
  for (const tensor::Parameter& parameter : model.parameters()) {
    const auto names = models::foreign_names(parameter.name, models::hyenadna_names());
    output[prefix + "gradient." + names.front()] = parameter.value.grad();
  }
}

std::map<std::string, std::string> parameter_counts() {
  std::map<std::string, std::string> counts;
  for (const std::string& size : models::hyena_sizes()) {
    int64_t count = 0;
    for (const tensor::Parameter& parameter :
         models::Hyena(models::hyena_size(size), 1).parameters()) {
      count += parameter.value.numel();
    }
    counts["parameters." + size] = std::to_string(count);
  }
  return counts;
}

}  // namespace
}  // namespace mantissa

int main(int argc, char** argv) {
  using namespace mantissa;
  if (argc != 3) {
    std::fputs("usage: peer_hyena INPUT OUTPUT\n", stderr);
    return 2;
  }
  try {
    at::set_num_threads(1);
    ops::install_cpu_kernels();
    const tensor::Safetensors input = tensor::read_safetensors(argv[1]);
    Tensors output;
    run(input, "fp64.", at::kDouble, output);
    run(input, "fp32.", at::kFloat, output);
    tensor::write_safetensors(argv[2], output, parameter_counts());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
