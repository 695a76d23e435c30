#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace mantissa::nan_benchmark {

/// A small step that fails, and the same step that does not. What is expected of it stands in
/// truth.json or held_out.json under the same name, with the reason.
struct Case {
  std::string name;
  at::Tensor faulty;   // the one parameter of the step
  at::Tensor healthy;  // of the twin

  /// The forward pass, or a whole update. The step sums what it returns in FP32, in scope `loss`,
  /// and runs the backward pass; undefined: there is none.
  std::function<at::Tensor(const at::Tensor& x, bool is_faulty)> output;
};

/// The step fails by the numbers that it is given.
Case by_value(std::string name, const at::Tensor& faulty, const at::Tensor& healthy,
              std::function<at::Tensor(const at::Tensor& x)> output);

/// The step fails by what it does with them.
Case by_code(std::string name, const at::Tensor& x,
             std::function<at::Tensor(const at::Tensor& x, bool is_faulty)> output);

/// The step fails by both.
Case by_both(std::string name, const at::Tensor& faulty, const at::Tensor& healthy,
             std::function<at::Tensor(const at::Tensor& x, bool is_faulty)> output);

at::Tensor filled(at::IntArrayRef sizes, double value, at::ScalarType dtype = at::kFloat);
at::Tensor values(std::vector<float> numbers);  // FP32, 1-d
at::Tensor half(const at::Tensor& x);           // a cast of the model's own
at::Tensor bfloat(const at::Tensor& x);

std::vector<Case> product_cases();
std::vector<Case> sum_cases();
std::vector<Case> function_cases();
std::vector<Case> loss_cases();
std::vector<Case> norm_cases();
std::vector<Case> mask_cases();
std::vector<Case> gradient_cases();
std::vector<Case> layer_gradient_cases();
std::vector<Case> update_cases();
std::vector<Case> silent_cases();
std::vector<Case> data_cases();

/// Of all kinds, in the order of this file.
std::vector<Case> all_cases();

std::vector<Case> held_out_nets();
std::vector<Case> held_out_counts();
std::vector<Case> held_out_losses();
std::vector<Case> held_out_training();

/// Those that no tool was tuned on before their first run. Their truth stands in held_out.json.
std::vector<Case> held_out_cases();

std::vector<Case> joined(const std::vector<std::vector<Case>>& parts);

}  // namespace mantissa::nan_benchmark
