// An autograd function of your own: its backward runs in the region in which its forward ran.
#include <cstdio>

#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/core/ScalarType.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/amp/autocast_function.h"
#include "mantissa/ops/install_cpu_kernels.h"

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// x * w^T, with its products chosen by the policy in both directions.
struct Product : mantissa::amp::AutocastFunction<Product> {
  static at::Tensor forward_in_region(AutogradContext* context, const at::Tensor& x,
                                      const at::Tensor& w) {
    context->save_for_backward({x, w});  // as they came, in FP32
    return at::mm(x, w.t());             // in FP16: mm is a `lower` operation
  }

  static variable_list backward_in_region(AutogradContext* context,
                                          const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor of_x = at::mm(gradients[0], saved[1]);
    const at::Tensor of_w = at::mm(gradients[0].t(), saved[0]);
    std::printf("backward multiplied in %s\n", c10::toString(of_w.scalar_type()));
    return {of_x, of_w};
  }
};

int main() {
  mantissa::ops::install_cpu_kernels();
  at::manual_seed(1);
  const at::Tensor x = at::randn({8, 16});
  const at::Tensor w = at::randn({4, 16}).requires_grad_();
  const auto policy = mantissa::amp::find_policy("torch-fixed compute=fp16");
  at::Tensor y;
  {
    const mantissa::amp::Autocast region(policy);
    y = Product::apply(x, w);
  }
  y.sum().backward();  // outside of the region
  // The gradient is the sum over rows of x, each rounded to FP16 once: 11 bits.
  const at::Tensor expected = x.sum(0, true).expand_as(w);
  const bool right = at::allclose(w.grad(), expected, 0, 16 * 4.0 / 2048);
  std::printf("forward in %s, gradient in %s, %s\n", c10::toString(y.scalar_type()),
              c10::toString(w.grad().scalar_type()), right ? "right" : "wrong");
}
