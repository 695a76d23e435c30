// With policy torch-cpu and LibTorch's own kernels, results and gradients are bit for bit those of
// at::autocast on CPU.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "mantissa/amp/at_autocast_testing.h"
#include "mantissa/amp/autocast.h"

namespace mantissa::amp {
namespace {

using c10::IValue;
using Arguments = std::vector<IValue>;

// Calls an operation by name; arguments that are not given have their defaults.
std::vector<at::Tensor> call(const std::string& operation, const Arguments& arguments) {
  const size_t dot = operation.find('.');
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(
      ("aten::" + operation.substr(0, dot)).c_str(),
      dot == std::string::npos ? "" : operation.substr(dot + 1).c_str());
  torch::jit::Stack stack = arguments;
  const auto& schema = handle.schema().arguments();
  for (size_t i = stack.size(); i < schema.size(); ++i) {
    stack.push_back(schema[i].default_value().value());
  }
  handle.callBoxed(&stack);
  std::vector<at::Tensor> results;
  for (const IValue& value : stack) {
    if (value.isTensor() && value.toTensor().defined()) {
      results.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        results.push_back(tensor);
      }
    }
  }
  return results;
}

at::Tensor scalar_loss(const std::vector<at::Tensor>& results) {
  at::Tensor loss;
  for (const at::Tensor& result : results) {
    if (result.requires_grad()) {
      const at::Tensor real = result.is_complex() ? result.abs() : result;
      const at::Tensor term = real.to(at::kDouble).square().sum();
      loss = loss.defined() ? loss.add(term) : term;
    }
  }
  return loss;
}

struct Outcome {
  std::vector<at::Tensor> results;
  std::vector<at::Tensor> gradients;
  std::string error;
};

struct Case {
  std::string operation;
  std::function<Arguments()> arguments;
};

std::vector<at::Tensor> leaves_of(const Arguments& arguments) {
  std::vector<at::Tensor> leaves;
  const auto see = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.is_leaf() && tensor.requires_grad()) {
      leaves.push_back(tensor);
    }
  };
  for (const IValue& argument : arguments) {
    if (argument.isTensor()) {
      see(argument.toTensor());
    } else if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorVector()) {
        see(tensor);
      }
    }
  }
  return leaves;
}

template <typename Region, typename... Options>
Outcome run(const Case& test, const Options&... options) {
  at::manual_seed(7);
  Outcome outcome;
  const Arguments arguments = test.arguments();
  try {
    {
      const Region region(options...);
      outcome.results = call(test.operation, arguments);
    }
    const at::Tensor loss = scalar_loss(outcome.results);
    if (loss.defined()) {
      loss.backward();
    }
  } catch (const std::exception& error) {
    outcome.error = "threw";
  }
  for (const at::Tensor& leaf : leaves_of(arguments)) {
    outcome.gradients.push_back(leaf.grad());
  }
  return outcome;
}

void expect_same(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs,
                 const char* what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].defined(), theirs[i].defined()) << what << i;
    if (ours[i].defined()) {
      EXPECT_EQ(ours[i].scalar_type(), theirs[i].scalar_type()) << what << i;
      EXPECT_TRUE(at::equal(ours[i].nan_to_num(), theirs[i].nan_to_num())) << what << i;
    }
  }
}

// Inputs. Leaves require a gradient, so that the cast cache takes part.
at::Tensor f32(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); }
at::Tensor bf16(at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); }
at::Tensor f64(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }
at::Tensor probability(at::IntArrayRef sizes) { return at::rand(sizes).to(at::kBFloat16); }
at::Tensor classes(at::IntArrayRef sizes, int64_t num) { return at::randint(num, sizes); }
at::Tensor symmetric(int64_t n) {
  const at::Tensor root = at::randn({n, n});
  return root.mm(root.t()).add(at::eye(n), 4).to(at::kBFloat16);
}
IValue list(std::vector<int64_t> values) { return IValue(c10::List<int64_t>(std::move(values))); }
IValue tensors(std::vector<at::Tensor> values) {
  return IValue(c10::List<at::Tensor>(std::move(values)));
}
const IValue kNone;

std::vector<Case> products() {
  return {
      {"mm",
       [] {
         return Arguments{f32({3, 4}), f32({4, 5})};
       }},
      {"mm",
       [] {
         return Arguments{bf16({3, 4}), f32({4, 5})};
       }},
      {"mm",
       [] {
         return Arguments{f64({3, 4}), f64({4, 5})};
       }},
      {"mm",
       [] {
         return Arguments{f64({3, 4}), f32({4, 5})};
       }},
      {"bmm",
       [] {
         return Arguments{f32({2, 3, 4}), f32({2, 4, 5})};
       }},
      {"addmm",
       [] {
         return Arguments{f32({3, 5}), f32({3, 4}), bf16({4, 5})};
       }},
      {"_addmm_activation",
       [] {
         return Arguments{f32({5}), f32({3, 4}), f32({4, 5})};
       }},
      {"addbmm",
       [] {
         return Arguments{f32({3, 5}), f32({2, 3, 4}), f32({2, 4, 5})};
       }},
      {"baddbmm",
       [] {
         return Arguments{f32({2, 3, 5}), f32({2, 3, 4}), f32({2, 4, 5})};
       }},
      {"linalg_vecdot",
       [] {
         return Arguments{f32({3, 4}), f32({3, 4})};
       }},
      {"linear",
       [] {
         return Arguments{f32({2, 3, 4}), f32({5, 4}), f32({5})};
       }},
      {"linear",
       [] {
         return Arguments{bf16({3, 4}), f32({5, 4}), kNone};
       }},
      {"matmul",
       [] {
         return Arguments{f32({2, 3, 4}), f32({4, 5})};
       }},
      {"einsum",
       [] {
         return Arguments{"bij,jk->bik", tensors({f32({2, 3, 4}), f32({4, 5})})};
       }},
      {"chain_matmul",
       [] {
         return Arguments{tensors({f32({2, 3}), f32({3, 4}), f32({4, 5})})};
       }},
      {"prelu",
       [] {
         return Arguments{f32({3, 4}), f32({1})};
       }},
      {"scaled_dot_product_attention",
       [] {
         return Arguments{f32({2, 2, 4, 8}), f32({2, 2, 4, 8}), f32({2, 2, 4, 8})};
       }},
      {"scaled_dot_product_attention",
       [] {
         return Arguments{
             f32({2, 2, 4, 8}), f32({2, 2, 4, 8}), bf16({2, 2, 4, 8}), kNone, 0.0, true};
       }},
      {"conv1d",
       [] {
         return Arguments{f32({2, 3, 8}), f32({4, 3, 3}), f32({4})};
       }},
      {"conv1d.padding",
       [] {
         return Arguments{f32({2, 3, 8}), f32({4, 3, 3}), f32({4}), list({1}), "same"};
       }},
      {"conv2d",
       [] {
         return Arguments{f32({2, 3, 6, 6}), f32({4, 3, 3, 3}), kNone};
       }},
      {"conv2d.padding",
       [] {
         return Arguments{f32({1, 3, 6, 6}), f32({4, 3, 3, 3}), f32({4}), list({1, 1}), "valid"};
       }},
      {"conv3d",
       [] {
         return Arguments{f32({1, 2, 4, 4, 4}), f32({3, 2, 2, 2, 2}), kNone};
       }},
      {"conv_tbc",
       [] {
         return Arguments{f32({6, 2, 3}), f32({3, 3, 4}), f32({4})};
       }},
      {"conv_transpose1d",
       [] {
         return Arguments{f32({2, 3, 8}), f32({3, 4, 3}), kNone};
       }},
      {"conv_transpose2d.input",
       [] {
         return Arguments{f32({1, 3, 5, 5}), f32({3, 2, 3, 3}), f32({2})};
       }},
      {"conv_transpose3d.input",
       [] {
         return Arguments{f32({1, 2, 3, 3, 3}), f32({2, 2, 2, 2, 2}), kNone};
       }},
      {"lstm_cell",
       [] {
         return Arguments{f32({2, 3}),  tensors({f32({2, 4}), f32({2, 4})}),
                          f32({16, 3}), f32({16, 4}),
                          f32({16}),    f32({16})};
       }},
      {"gru_cell",
       [] {
         return Arguments{f32({2, 3}),  f32({2, 4}), f32({12, 3}),
                          f32({12, 4}), f32({12}),   f32({12})};
       }},
  };
}

std::vector<Case> losses() {
  return {
      {"mse_loss",
       [] {
         return Arguments{bf16({3, 4}).requires_grad_(), bf16({3, 4})};
       }},
      {"l1_loss",
       [] {
         return Arguments{bf16({3, 4}).requires_grad_(), bf16({3, 4})};
       }},
      {"smooth_l1_loss",
       [] {
         return Arguments{bf16({3, 4}).requires_grad_(), bf16({3, 4})};
       }},
      {"huber_loss",
       [] {
         return Arguments{bf16({3, 4}).requires_grad_(), bf16({3, 4})};
       }},
      {"binary_cross_entropy",
       [] {
         return Arguments{probability({3, 4}), probability({3, 4})};
       }},
      {"binary_cross_entropy_with_logits",
       [] {
         return Arguments{bf16({3, 4}).requires_grad_(), probability({3, 4})};
       }},
      {"cross_entropy_loss",
       [] {
         return Arguments{bf16({6, 5}).requires_grad_(), classes({6}, 5)};
       }},
      {"cross_entropy_loss",
       [] {
         return Arguments{f32({6, 5}), classes({6}, 5), f32({5}).detach(), 1, -100, 0.1};
       }},
      {"nll_loss",
       [] {
         return Arguments{bf16({6, 5}), classes({6}, 5)};
       }},
      {"nll_loss2d",
       [] {
         return Arguments{bf16({2, 5, 3, 3}), classes({2, 3, 3}, 5)};
       }},
      {"kl_div",
       [] {
         return Arguments{bf16({3, 4}), probability({3, 4})};
       }},
      {"poisson_nll_loss",
       [] {
         return Arguments{f32({3, 4}), bf16({3, 4}), true, false, 1e-8, 1};
       }},
      {"cosine_embedding_loss",
       [] {
         return Arguments{bf16({3, 4}), bf16({3, 4}), at::ones({3})};
       }},
      {"hinge_embedding_loss",
       [] {
         return Arguments{bf16({3, 4}), at::ones({3, 4})};
       }},
      {"margin_ranking_loss",
       [] {
         return Arguments{bf16({3}), bf16({3}), bf16({3}).sign()};
       }},
      {"soft_margin_loss",
       [] {
         return Arguments{bf16({3, 4}), at::ones({3, 4})};
       }},
      {"triplet_margin_loss",
       [] {
         return Arguments{bf16({3, 4}), bf16({3, 4}), bf16({3, 4})};
       }},
      {"multi_margin_loss",
       [] {
         return Arguments{bf16({3, 4}), classes({3}, 4)};
       }},
      {"multilabel_margin_loss",
       [] {
         return Arguments{bf16({3, 4}), classes({3, 4}, 4)};
       }},
      {"ctc_loss.IntList",
       [] {
         return Arguments{bf16({8, 2, 5}).log_softmax(-1), at::ones({2, 3}, at::kLong),
                          list({8, 8}), list({3, 3})};
       }},
  };
}

std::vector<Case> spectra_and_solvers() {
  std::vector<Case> cases;
  for (const std::string name :
       {"fft_fft", "fft_ifft", "fft_rfft", "fft_hfft", "fft_ihfft", "fft_fft2", "fft_fftn",
        "fft_rfft2", "fft_rfftn", "fft_ifft2", "fft_ifftn"}) {
    cases.push_back({name, [] { return Arguments{bf16({4, 8})}; }});
  }
  for (const std::string name :
       {"cholesky", "cholesky_inverse", "inverse", "pinverse", "linalg_cholesky",
        "linalg_cholesky_ex", "linalg_eigh", "linalg_eigvals", "linalg_eigvalsh", "linalg_inv",
        "linalg_inv_ex", "linalg_qr", "linalg_svdvals", "trace", "linalg_cond", "geqrf", "qr"}) {
    cases.push_back({name, [] { return Arguments{symmetric(4)}; }});
  }
  cases.push_back({"linalg_solve", [] { return Arguments{symmetric(4), f32({4, 2})}; }});
  cases.push_back({"cholesky_solve", [] { return Arguments{f32({4, 2}), symmetric(4)}; }});
  cases.push_back({"triangular_solve", [] { return Arguments{f32({4, 2}), symmetric(4)}; }});
  cases.push_back({"linalg_tensorinv", [] { return Arguments{bf16({4, 2, 2}), 1}; }});
  cases.push_back({"linalg_matrix_rank", [] { return Arguments{symmetric(4), 1e-3}; }});
  cases.push_back({"stft", [] { return Arguments{bf16({64}), 16}; }});
  return cases;
}

std::vector<Case> others() {
  return {
      {"cat",
       [] {
         return Arguments{tensors({bf16({2, 3}), f32({2, 3})})};
       }},
      {"cat",
       [] {
         return Arguments{tensors({bf16({2, 3}), bf16({2, 3})})};
       }},
      {"cat",
       [] {
         return Arguments{tensors({bf16({2, 3}), f64({2, 3})})};
       }},
      {"cat",
       [] {
         return Arguments{tensors({f32({2, 3}), classes({2, 3}, 9)})};
       }},
      {"stack",
       [] {
         return Arguments{tensors({bf16({2, 3}), f32({2, 3})}), 1};
       }},
      {"index_copy",
       [] {
         return Arguments{f32({4, 3}), 0, at::arange(2), bf16({2, 3})};
       }},
      {"prod",
       [] {
         return Arguments{bf16({3, 4})};
       }},
      {"prod.dim_int",
       [] {
         return Arguments{bf16({3, 4}), 1};
       }},
      {"quantile.scalar",
       [] {
         return Arguments{bf16({12}), 0.3};
       }},
      {"nanquantile.scalar",
       [] {
         return Arguments{bf16({12}), 0.3};
       }},
      {"cdist",
       [] {
         return Arguments{bf16({3, 4}), f32({5, 4})};
       }},
      {"polar",
       [] {
         return Arguments{bf16({3}), f32({3}).detach()};
       }},
      {"view_as_complex",
       [] {
         return Arguments{bf16({3, 2})};
       }},
      {"grid_sampler",
       [] {
         return Arguments{bf16({1, 2, 4, 4}), f32({1, 3, 3, 2}), 0, 0, false};
       }},
      {"avg_pool3d",
       [] {
         return Arguments{bf16({1, 2, 4, 4, 4}), list({2, 2, 2})};
       }},
      {"adaptive_avg_pool3d",
       [] {
         return Arguments{bf16({1, 2, 4, 4, 4}), list({2, 2, 2})};
       }},
      {"max_pool3d",
       [] {
         return Arguments{bf16({1, 2, 4, 4, 4}), list({2, 2, 2})};
       }},
      {"reflection_pad1d",
       [] {
         return Arguments{bf16({1, 2, 4}), list({1, 1})};
       }},
      {"replication_pad2d",
       [] {
         return Arguments{bf16({1, 2, 4, 4}), list({1, 1, 1, 1})};
       }},
      {"fake_quantize_per_tensor_affine",
       [] {
         return Arguments{bf16({3, 4}), 0.1, 0, -128, 127};
       }},
      // Not on the list: computed in what arrives.
      {"layer_norm",
       [] {
         return Arguments{bf16({3, 4}), list({4})};
       }},
      {"softmax.int",
       [] {
         return Arguments{bf16({3, 4}), 1};
       }},
      {"sum",
       [] {
         return Arguments{bf16({3, 4})};
       }},
      {"norm.Scalar",
       [] {
         return Arguments{bf16({3, 4})};
       }},
      {"mean",
       [] {
         return Arguments{bf16({3, 4})};
       }},
      {"gelu",
       [] {
         return Arguments{bf16({3, 4})};
       }},
      {"add.Tensor",
       [] {
         return Arguments{bf16({3, 4}), f32({3, 4})};
       }},
      {"scatter_add",
       [] {
         return Arguments{at::zeros({2, 2}), 0, classes({2, 2}, 2), bf16({2, 2})};
       }},
      {"lerp.Scalar",
       [] {
         return Arguments{f32({3}), bf16({3}), 0.5};
       }},
      {"mv",
       [] {
         return Arguments{f32({3, 4}), bf16({4})};
       }},
      // Forms that write into an argument keep its dtype.
      {"addmm_",
       [] {
         return Arguments{at::zeros({3, 5}), at::ones({3, 4}), at::ones({4, 5})};
       }},
      {"mm.out",
       [] {
         return Arguments{at::ones({3, 4}), at::ones({4, 5}), at::zeros({3, 5})};
       }},
  };
}

// Some listed operations are deprecated and say so.
class Silence : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// Where at::autocast throws, so do we: all arguments here have dtypes that it accepts.
void compare(const std::vector<Case>& cases, numerics::Format compute, at::ScalarType dtype) {
  const Policy policy{.base = "torch-cpu", .compute = compute};
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  int computed = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].operation + ", case " + std::to_string(i));
    const Outcome theirs = run<AtAutocast>(cases[i], dtype);
    const Outcome ours = run<Autocast>(cases[i], policy);
    EXPECT_EQ(ours.error, theirs.error);
    expect_same(ours.results, theirs.results, "result ");
    expect_same(ours.gradients, theirs.gradients, "gradient ");
    computed += theirs.error.empty() ? 1 : 0;
  }
  // Guards against a typing error that makes both throw.
  EXPECT_GE(computed, static_cast<int>(cases.size()) - 4);
}

TEST(Conformance, ProductsConvolutionsAndAttention) {
  compare(products(), numerics::Format::bf16, at::kBFloat16);
}

TEST(Conformance, ProductsInFp16) {
  const std::vector<Case> cases = {
      {"linear",
       [] {
         return Arguments{f32({3, 4}), f32({5, 4}), f32({5})};
       }},
      {"bmm",
       [] {
         return Arguments{f32({2, 3, 4}), f32({2, 4, 5})};
       }},
      {"cat",
       [] {
         return Arguments{tensors({f32({2, 3}), at::ones({2, 3}, at::kHalf)})};
       }},
  };
  compare(cases, numerics::Format::fp16, at::kHalf);
}

TEST(Conformance, Losses) { compare(losses(), numerics::Format::bf16, at::kBFloat16); }

TEST(Conformance, SpectraAndSolvers) {
  compare(spectra_and_solvers(), numerics::Format::bf16, at::kBFloat16);
}

TEST(Conformance, PromotionReductionsPoolingAndUnlistedOperations) {
  compare(others(), numerics::Format::bf16, at::kBFloat16);
}

// A convolution, attention with one fused projection, tied embedding and head, three norms.
struct Model {
  at::Tensor embedding = at::randn({16, 8}).mul_(0.3).requires_grad_();
  at::Tensor filter = at::randn({8, 8, 3}).mul_(0.2).requires_grad_();
  at::Tensor qkv = at::randn({24, 8}).mul_(0.3).requires_grad_();
  at::Tensor up = at::randn({32, 8}).mul_(0.3).requires_grad_();
  at::Tensor up_bias = at::zeros({32}).requires_grad_();
  at::Tensor down = at::randn({8, 32}).mul_(0.2).requires_grad_();
  at::Tensor norm = at::ones({8}).requires_grad_();

  std::vector<at::Tensor> parameters() const {
    return {embedding, filter, qkv, up, up_bias, down, norm};
  }

  at::Tensor loss(const at::Tensor& tokens) const {
    at::Tensor x = at::embedding(embedding, tokens);
    x = x.add(at::conv1d(x.transpose(1, 2), filter, {}, 1, 1).transpose(1, 2));
    const auto parts = at::linear(at::layer_norm(x, {8}, norm), qkv).chunk(3, -1);
    x = x.add(at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true));
    x = x.add(at::linear(at::gelu(at::linear(at::layer_norm(x, {8}, norm), up, up_bias)), down));
    const at::Tensor logits = at::linear(at::layer_norm(x, {8}, norm), embedding);
    return at::cross_entropy_loss(logits.flatten(0, 1), tokens.roll(1, 1).flatten());
  }
};

// Losses of each SGD step, then all gradients of the last and all parameters.
template <typename Region, typename... Options>
std::vector<at::Tensor> train(const Options&... options) {
  at::manual_seed(11);
  at::set_num_threads(1);
  const Model model;
  std::vector<at::Tensor> trace;
  for (int i = 0; i < 8; ++i) {
    const at::Tensor tokens = at::randint(16, {2, 12});
    at::Tensor loss;
    {
      const Region region(options...);
      loss = model.loss(tokens);
    }
    loss.backward();
    trace.push_back(loss.detach());
    for (at::Tensor parameter : model.parameters()) {
      trace.push_back(parameter.grad().clone());
      const at::NoGradGuard no_grad;
      parameter.sub_(parameter.grad(), 0.1);
      parameter.mutable_grad().reset();
    }
  }
  for (const at::Tensor& parameter : model.parameters()) {
    trace.push_back(parameter.detach());
  }
  return trace;
}

TEST(Conformance, LossesGradientsAndParametersOfAModelOverEightSteps) {
  const auto ours = train<Autocast>(find_policy("torch-cpu"));
  const auto theirs = train<AtAutocast>(at::kBFloat16);
  expect_same(ours, theirs, "value ");
  EXPECT_LT(ours[7 * 8].item<float>(), ours[0].item<float>());
}

}  // namespace
}  // namespace mantissa::amp
