#include "mantissa/amp/shipped_policies.h"

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"

namespace mantissa::amp {
namespace {

using numerics::Format;

// Operations with several tensor arguments that refuse mixed formats in LibTorch and that the list
// for CUDA lacks. What LibTorch itself promotes (add, where, cat of FP32 and a 16-bit format, ...)
// needs no rule. tests/conformance/promotion_sweep_test.cpp finds them, and says which it leaves
// out and why.
constexpr OpRule kPromote[] = {
    {"allclose", Rule::widest},
    {"cartesian_prod", Rule::widest},
    {"cholesky_solve", Rule::widest},
    {"complex", Rule::widest},
    {"fractional_max_pool2d", Rule::widest},
    {"fractional_max_pool3d", Rule::widest},
    {"grid_sampler_2d", Rule::widest},
    {"grid_sampler_3d", Rule::widest},
    {"heaviside", Rule::widest},
    {"index_add", Rule::widest},
    {"index_copy", Rule::widest},
    {"index_reduce", Rule::widest},
    {"isclose", Rule::widest},
    {"lerp", Rule::widest},
    {"linalg_cross", Rule::widest},
    {"linalg_householder_product", Rule::widest},
    {"linalg_ldl_solve", Rule::widest},
    {"linalg_lstsq", Rule::widest},
    {"linalg_lu_solve", Rule::widest},
    {"linalg_solve", Rule::widest},
    {"linalg_solve_ex", Rule::widest},
    {"linalg_solve_triangular", Rule::widest},
    {"linalg_tensorsolve", Rule::widest},
    {"lu_solve", Rule::widest},
    {"masked_scatter", Rule::widest},
    {"meshgrid", Rule::widest},
    {"orgqr", Rule::widest},
    {"ormqr", Rule::widest},
    {"polar", Rule::widest},
    {"put", Rule::widest},
    {"scatter.src", Rule::widest},
    {"scatter_reduce.two", Rule::widest},
    {"triangular_solve", Rule::widest},
    // in-place forms, as in x[mask] = linear(y)
    {"index_add_", Rule::to_self},
    {"index_copy_", Rule::to_self},
    {"index_put_", Rule::to_self},
    {"index_reduce_", Rule::to_self},
    {"lerp_", Rule::to_self},
    {"masked_scatter_", Rule::to_self},
    {"put_", Rule::to_self},
    {"scatter_.src", Rule::to_self},
    {"scatter_add_", Rule::to_self},
    {"scatter_reduce_.two", Rule::to_self},
};

constexpr OpRule kLosses[] = {
    {"cross_entropy_loss", Rule::fp32},
    {"ctc_loss", Rule::fp32},
    {"multilabel_margin_loss_forward", Rule::fp32},
};

constexpr OpRule kStatistics[] = {
    {"logcumsumexp", Rule::fp32}, {"mean", Rule::fp32_output},   {"nanmean", Rule::fp32_output},
    {"nanquantile", Rule::fp32},  {"nansum", Rule::fp32_output}, {"quantile", Rule::fp32},
    {"std", Rule::fp32},          {"std_mean", Rule::fp32},      {"trace", Rule::fp32},
    {"var", Rule::fp32},          {"var_mean", Rule::fp32},
};

constexpr OpRule kFft[] = {
    {"fft_fft", Rule::fp32},   {"fft_fft2", Rule::fp32},   {"fft_fftn", Rule::fp32},
    {"fft_hfft", Rule::fp32},  {"fft_hfft2", Rule::fp32},  {"fft_hfftn", Rule::fp32},
    {"fft_ifft", Rule::fp32},  {"fft_ifft2", Rule::fp32},  {"fft_ifftn", Rule::fp32},
    {"fft_ihfft", Rule::fp32}, {"fft_ihfft2", Rule::fp32}, {"fft_ihfftn", Rule::fp32},
    {"fft_irfft", Rule::fp32}, {"fft_irfft2", Rule::fp32}, {"fft_irfftn", Rule::fp32},
    {"fft_rfft", Rule::fp32},  {"fft_rfft2", Rule::fp32},  {"fft_rfftn", Rule::fp32},
    {"stft", Rule::fp32},
};

// Kernels that read and write 16 bits and sum in FP32 inside: docs/numerics.md has the bounds.
constexpr OpRule kLean[] = {
    {"embedding", Rule::lower_output},  {"group_norm", Rule::lower}, {"layer_norm", Rule::lower},
    {"native_layer_norm", Rule::lower}, {"rms_norm", Rule::lower},   {"softmax.int", Rule::lower},
};

// A layer of Keras casts its inputs and variables to its compute type and computes all in it;
// normalizations do so in FP32 inside, losses get FP32 predictions.
constexpr OpRule kKeras[] = {
    {"addbmm", Rule::lower},
    {"addmm", Rule::lower},
    {"addmv", Rule::lower},
    {"baddbmm", Rule::lower},
    {"batch_norm", Rule::lower},
    {"binary_cross_entropy", Rule::fp32},
    {"binary_cross_entropy_with_logits", Rule::fp32},
    {"bmm", Rule::lower},
    {"conv1d", Rule::lower},
    {"conv2d", Rule::lower},
    {"conv3d", Rule::lower},
    {"conv_transpose1d", Rule::lower},
    {"conv_transpose2d", Rule::lower},
    {"conv_transpose3d", Rule::lower},
    {"cosine_embedding_loss", Rule::fp32},
    {"cross_entropy_loss", Rule::fp32},
    {"ctc_loss", Rule::fp32},
    {"einsum", Rule::lower},
    {"embedding", Rule::lower_output},
    {"group_norm", Rule::lower},
    {"gru_cell", Rule::lower},
    {"hinge_embedding_loss", Rule::fp32},
    {"huber_loss", Rule::fp32},
    {"kl_div", Rule::fp32},
    {"l1_loss", Rule::fp32},
    {"layer_norm", Rule::lower},
    {"linear", Rule::lower},
    {"lstm_cell", Rule::lower},
    {"margin_ranking_loss", Rule::fp32},
    {"matmul", Rule::lower},
    {"mm", Rule::lower},
    {"mse_loss", Rule::fp32},
    {"multi_margin_loss", Rule::fp32},
    {"mv", Rule::lower},
    {"nll_loss", Rule::fp32},
    {"nll_loss2d", Rule::fp32},
    {"poisson_nll_loss", Rule::fp32},
    {"prelu", Rule::lower},
    {"rms_norm", Rule::lower},
    {"scaled_dot_product_attention", Rule::lower},
    {"smooth_l1_loss", Rule::fp32},
    {"soft_margin_loss", Rule::fp32},
    {"triplet_margin_loss", Rule::fp32},
};

// Apex's lists (apex/amp/lists). Its rule for functions of Python is here one for the operations
// of ATen of that name.
constexpr OpRule kApexO1[] = {
    {"acos", Rule::fp32},
    {"add.Tensor", Rule::widest},
    {"addbmm", Rule::lower},
    {"addcdiv", Rule::widest},
    {"addcmul", Rule::widest},
    {"addmm", Rule::lower},
    {"addmv", Rule::lower},
    {"addr", Rule::lower},
    {"asin", Rule::fp32},
    {"atan2", Rule::widest},
    {"baddbmm", Rule::lower},
    {"bilinear", Rule::widest},
    {"binary_cross_entropy", Rule::banned},
    {"binary_cross_entropy_with_logits", Rule::fp32},
    {"bmm", Rule::lower},
    {"cat", Rule::widest},
    {"conv1d", Rule::lower},
    {"conv2d", Rule::lower},
    {"conv3d", Rule::lower},
    {"conv_tbc", Rule::lower},
    {"conv_transpose1d", Rule::lower},
    {"conv_transpose2d", Rule::lower},
    {"conv_transpose3d", Rule::lower},
    {"cosh", Rule::fp32},
    {"cosine_embedding_loss", Rule::fp32},
    {"cosine_similarity", Rule::fp32},
    {"cross", Rule::widest},
    {"cross_entropy_loss", Rule::fp32},
    {"ctc_loss", Rule::fp32},
    {"cumprod", Rule::fp32},
    {"cumsum", Rule::fp32},
    {"dist", Rule::fp32},
    {"div.Tensor", Rule::widest},
    {"dot", Rule::widest},
    {"eq.Tensor", Rule::widest},
    {"equal", Rule::widest},
    {"erfinv", Rule::fp32},
    {"exp", Rule::fp32},
    {"expm1", Rule::fp32},
    {"ge.Tensor", Rule::widest},
    {"gelu", Rule::fp32},
    {"grid_sampler", Rule::fp32},
    {"group_norm", Rule::fp32},
    {"gt.Tensor", Rule::widest},
    {"hinge_embedding_loss", Rule::fp32},
    {"kl_div", Rule::fp32},
    {"l1_loss", Rule::fp32},
    {"layer_norm", Rule::fp32},
    {"le.Tensor", Rule::widest},
    {"linear", Rule::lower},
    {"log", Rule::fp32},
    {"log10", Rule::fp32},
    {"log2", Rule::fp32},
    {"log_softmax", Rule::fp32},
    {"lt.Tensor", Rule::widest},
    {"margin_ranking_loss", Rule::fp32},
    {"matmul", Rule::lower},
    {"mm", Rule::lower},
    {"mse_loss", Rule::fp32},
    {"mul.Tensor", Rule::widest},
    {"multi_margin_loss", Rule::fp32},
    {"multilabel_margin_loss", Rule::fp32},
    {"mv", Rule::lower},
    {"ne.Tensor", Rule::widest},
    {"nll_loss", Rule::fp32},
    {"nll_loss2d", Rule::fp32},
    {"norm", Rule::fp32},
    {"poisson_nll_loss", Rule::fp32},
    {"pow", Rule::fp32},
    {"prelu", Rule::lower},
    {"prod", Rule::fp32},
    {"reciprocal", Rule::fp32},
    {"renorm", Rule::fp32},
    {"rsqrt", Rule::fp32},
    {"sinh", Rule::fp32},
    {"smooth_l1_loss", Rule::fp32},
    {"soft_margin_loss", Rule::fp32},
    {"softmax", Rule::fp32},
    {"softplus", Rule::fp32},
    {"stack", Rule::widest},
    {"std", Rule::fp32},
    {"sub.Tensor", Rule::widest},
    {"sum", Rule::fp32},
    {"tan", Rule::fp32},
    {"triplet_margin_loss", Rule::fp32},
    {"upsample_bicubic2d", Rule::fp32},
    {"upsample_bilinear2d", Rule::fp32},
    {"upsample_linear1d", Rule::fp32},
    {"upsample_nearest1d", Rule::fp32},
    {"upsample_nearest2d", Rule::fp32},
    {"upsample_nearest3d", Rule::fp32},
    {"upsample_trilinear3d", Rule::fp32},
    {"var", Rule::fp32},
};

// O2 and O3 patch nothing: model and inputs are FP16. These casts are of the inputs that a model
// of ours makes in FP32, such as its residual stream.
constexpr OpRule kApexCastModel[] = {
    {"conv1d", Rule::lower},
    {"conv2d", Rule::lower},
    {"conv3d", Rule::lower},
    {"conv_transpose1d", Rule::lower},
    {"conv_transpose2d", Rule::lower},
    {"conv_transpose3d", Rule::lower},
    {"linear", Rule::lower},
    {"matmul", Rule::lower},
    {"scaled_dot_product_attention", Rule::lower},
};

const std::set<Fix> kAllFixes(kFixes.begin(), kFixes.end());

const std::vector<ShippedPolicy>& all() {
  static const std::vector<ShippedPolicy> policies = {
      {"the list of torch for CUDA, on every device: exact, faults too",
       TorchList::cuda,
       {},
       {.base = "torch"}},
      {"the list of torch for CPU, on every device: exact, faults too",
       TorchList::cpu,
       {},
       {.base = "torch-cpu"}},
      {"torch with every known deviation switched to what is right",
       TorchList::cuda,
       {},
       {.base = "torch-fixed", .fixes = kAllFixes}},
      {"torch-fixed with 16-bit results of norms, softmax and embeddings",
       TorchList::cuda,
       kLean,
       {.base = "lean", .fixes = kAllFixes}},
      {"mixed_bfloat16 and mixed_float16 of Keras 3",
       std::nullopt,
       kKeras,
       {.base = "keras", .fixes = {Fix::reduce, Fix::promote, Fix::foreign}}},
      {"Apex: FP32 weights, casts by its lists",
       std::nullopt,
       kApexO1,
       {.base = "apex-o1", .compute = Format::fp16, .fixes = {Fix::foreign}}},
      {"Apex: FP16 model but for batch norms, FP32 masters",
       std::nullopt,
       kApexCastModel,
       {.base = "apex-o2",
        .compute = Format::fp16,
        .param = Format::fp16,
        .output = Format::fp32,
        .parameters = {{"*batch_norm*", Format::fp32}, {"*bn*", Format::fp32}}}},
      {"Apex: all in FP16, without masters",
       std::nullopt,
       kApexCastModel,
       {.base = "apex-o3", .compute = Format::fp16, .param = Format::fp16, .output = Format::fp32}},
      {"torch-fixed with implicit filters, positions and SSM parameters in FP32",
       TorchList::cuda,
       {},
       {.base = "genomics",
        .fixes = kAllFixes,
        .scopes = {{"*filter", Format::fp32}, {"*position*", Format::fp32}},
        .parameters = {{"*.filter.*", Format::fp32},
                       {"*A_log", Format::fp32},
                       {"*.D", Format::fp32},
                       {"*dt_bias", Format::fp32},
                       {"*poles", Format::fp32},
                       {"*residues", Format::fp32}}}},
      {"no casts", std::nullopt, {}, {.base = "fp32", .compute = Format::fp32}},
  };
  return policies;
}

}  // namespace

const ShippedPolicy& shipped_policy(std::string_view name) {
  for (const ShippedPolicy& policy : all()) {
    if (policy.defaults.base == name) {
      return policy;
    }
  }
  throw InvalidArgument(
      concat("policy: unknown base \"", name, "\"", suggestion(name, policy_names())));
}

std::span<const OpRule> rules_of(Fix fix) {
  switch (fix) {
    case Fix::promote:
      return kPromote;
    case Fix::losses:
      return kLosses;
    case Fix::statistics:
      return kStatistics;
    case Fix::fft:
      return kFft;
    case Fix::reduce:
    case Fix::foreign:
      return {};
  }
  MANTISSA_ASSERT(false);
}

std::vector<PolicySummary> shipped_policies() {
  std::vector<PolicySummary> result;
  for (const ShippedPolicy& policy : all()) {
    result.push_back({policy.defaults.base, std::string(policy.summary)});
  }
  return result;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const ShippedPolicy& policy : all()) {
    names.push_back(policy.defaults.base);
  }
  return names;
}

}  // namespace mantissa::amp
