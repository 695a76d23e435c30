#include "case.h"

#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

namespace mantissa::nan_benchmark {

Case by_value(std::string name, const at::Tensor& faulty, const at::Tensor& healthy,
              std::function<at::Tensor(const at::Tensor& x)> output) {
  return {
      std::move(name), faulty, healthy,
      [output = std::move(output)](const at::Tensor& x, bool /*is_faulty*/) { return output(x); }};
}

Case by_code(std::string name, const at::Tensor& x,
             std::function<at::Tensor(const at::Tensor& x, bool is_faulty)> output) {
  return {std::move(name), x, x, std::move(output)};
}

Case by_both(std::string name, const at::Tensor& faulty, const at::Tensor& healthy,
             std::function<at::Tensor(const at::Tensor& x, bool is_faulty)> output) {
  return {std::move(name), faulty, healthy, std::move(output)};
}

at::Tensor filled(at::IntArrayRef sizes, double value, at::ScalarType dtype) {
  return at::full(sizes, value, dtype);
}

at::Tensor values(std::vector<float> numbers) { return at::tensor(numbers); }

at::Tensor half(const at::Tensor& x) { return x.to(at::kHalf); }

at::Tensor bfloat(const at::Tensor& x) { return x.to(at::kBFloat16); }

std::vector<Case> joined(const std::vector<std::vector<Case>>& parts) {
  std::vector<Case> all;
  for (const std::vector<Case>& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<Case> all_cases() {
  return joined({product_cases(), sum_cases(), function_cases(), loss_cases(), norm_cases(),
                 mask_cases(), gradient_cases(), layer_gradient_cases(), update_cases(),
                 silent_cases(), data_cases()});
}

std::vector<Case> held_out_cases() {
  return joined({held_out_nets(), held_out_counts(), held_out_losses(), held_out_training()});
}

}  // namespace mantissa::nan_benchmark
