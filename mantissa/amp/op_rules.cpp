#include "mantissa/amp/op_rules.h"

#include <array>

#include "mantissa/base/error.h"
#include "mantissa/base/nearest.h"

namespace mantissa::amp {
namespace {

constexpr std::array kRules = {Rule::lower,  Rule::fp32, Rule::fp32_output,
                               Rule::widest, Rule::keep, Rule::banned};

// The operations that torch 2.13.0 registers for AutocastCUDA, with the category of each in
// ATen/autocast_mode.h. torch flattens the weights of _cudnn_rnn anew after casting them; here the
// flat buffer is cast like any other argument, which gives the same numbers.
constexpr OpRule kTorch[] = {
    {"_convolution", Rule::lower},
    {"_convolution.deprecated", Rule::lower},
    {"conv1d", Rule::lower},
    {"conv2d", Rule::lower},
    {"conv3d", Rule::lower},
    {"conv_tbc", Rule::lower},
    {"conv_transpose1d", Rule::lower},
    {"conv_transpose2d.input", Rule::lower},
    {"conv_transpose3d.input", Rule::lower},
    {"convolution", Rule::lower},
    {"cudnn_convolution", Rule::lower},
    {"cudnn_convolution_transpose", Rule::lower},
    {"prelu", Rule::lower},
    {"addmm", Rule::lower},
    {"addmv", Rule::lower},
    {"addr", Rule::lower},
    {"matmul", Rule::lower},
    {"einsum", Rule::lower},
    {"mm", Rule::lower},
    {"mv", Rule::lower},
    {"linalg_vecdot", Rule::lower},
    {"linear", Rule::lower},
    {"addbmm", Rule::lower},
    {"baddbmm", Rule::lower},
    {"bmm", Rule::lower},
    {"chain_matmul", Rule::lower},
    {"linalg_multi_dot", Rule::lower},
    {"_thnn_fused_lstm_cell", Rule::lower},
    {"_thnn_fused_gru_cell", Rule::lower},
    {"lstm_cell", Rule::lower},
    {"gru_cell", Rule::lower},
    {"rnn_tanh_cell", Rule::lower},
    {"rnn_relu_cell", Rule::lower},
    {"_scaled_dot_product_flash_attention", Rule::lower},
    {"scaled_dot_product_attention", Rule::lower},
    {"_cudnn_rnn", Rule::lower},
    {"acos", Rule::fp32},
    {"asin", Rule::fp32},
    {"cosh", Rule::fp32},
    {"erfinv", Rule::fp32},
    {"exp", Rule::fp32},
    {"expm1", Rule::fp32},
    {"log", Rule::fp32},
    {"log10", Rule::fp32},
    {"log2", Rule::fp32},
    {"log1p", Rule::fp32},
    {"reciprocal", Rule::fp32},
    {"rsqrt", Rule::fp32},
    {"sinh", Rule::fp32},
    {"tan", Rule::fp32},
    {"pow.Tensor_Scalar", Rule::fp32},
    {"pow.Tensor_Tensor", Rule::fp32},
    {"pow.Scalar", Rule::fp32},
    {"softplus", Rule::fp32},
    {"layer_norm", Rule::fp32},
    {"native_layer_norm", Rule::fp32},
    {"rms_norm", Rule::fp32},
    {"group_norm", Rule::fp32},
    {"frobenius_norm.dim", Rule::fp32},
    {"nuclear_norm", Rule::fp32},
    {"nuclear_norm.dim", Rule::fp32},
    {"cosine_similarity", Rule::fp32},
    {"poisson_nll_loss", Rule::fp32},
    {"cosine_embedding_loss", Rule::fp32},
    {"nll_loss", Rule::fp32},
    {"nll_loss2d", Rule::fp32},
    {"hinge_embedding_loss", Rule::fp32},
    {"kl_div", Rule::fp32},
    {"l1_loss", Rule::fp32},
    {"smooth_l1_loss", Rule::fp32},
    {"huber_loss", Rule::fp32},
    {"mse_loss", Rule::fp32},
    {"margin_ranking_loss", Rule::fp32},
    {"multilabel_margin_loss", Rule::fp32},
    {"soft_margin_loss", Rule::fp32},
    {"triplet_margin_loss", Rule::fp32},
    {"multi_margin_loss", Rule::fp32},
    {"binary_cross_entropy_with_logits", Rule::fp32},
    {"dist", Rule::fp32},
    {"pdist", Rule::fp32},
    {"cdist", Rule::fp32},
    {"renorm", Rule::fp32},
    {"logsumexp", Rule::fp32},
    {"upsample_nearest1d", Rule::fp32},
    {"upsample_nearest2d", Rule::fp32},
    {"upsample_nearest3d", Rule::fp32},
    {"_upsample_nearest_exact1d", Rule::fp32},
    {"_upsample_nearest_exact2d", Rule::fp32},
    {"_upsample_nearest_exact3d", Rule::fp32},
    {"upsample_linear1d", Rule::fp32},
    {"upsample_bilinear2d", Rule::fp32},
    {"_upsample_bilinear2d_aa", Rule::fp32},
    {"upsample_trilinear3d", Rule::fp32},
    {"upsample_bicubic2d", Rule::fp32},
    {"_upsample_bicubic2d_aa", Rule::fp32},
    {"prod", Rule::fp32_output},
    {"prod.dim_int", Rule::fp32_output},
    {"softmax.int", Rule::fp32_output},
    {"log_softmax.int", Rule::fp32_output},
    {"cumprod", Rule::fp32_output},
    {"cumsum", Rule::fp32_output},
    {"linalg_vector_norm", Rule::fp32_output},
    {"linalg_matrix_norm", Rule::fp32_output},
    {"linalg_matrix_norm.str_ord", Rule::fp32_output},
    {"sum", Rule::fp32_output},
    {"sum.dim_IntList", Rule::fp32_output},
    {"norm.Scalar", Rule::fp32_output},
    {"norm.ScalarOpt_dim", Rule::fp32_output},
    {"addcdiv", Rule::widest},
    {"addcmul", Rule::widest},
    {"atan2", Rule::widest},
    {"bilinear", Rule::widest},
    {"cross", Rule::widest},
    {"dot", Rule::widest},
    {"vdot", Rule::widest},
    {"grid_sampler", Rule::widest},
    {"index_put", Rule::widest},
    {"tensordot", Rule::widest},
    {"scatter_add", Rule::widest},
    {"binary_cross_entropy", Rule::banned},
};

// The operations that torch 2.13.0 registers for AutocastCPU.
constexpr OpRule kTorchCpu[] = {
    {"conv1d", Rule::lower},
    {"conv1d.padding", Rule::lower},
    {"conv2d", Rule::lower},
    {"conv2d.padding", Rule::lower},
    {"conv3d", Rule::lower},
    {"conv3d.padding", Rule::lower},
    {"bmm", Rule::lower},
    {"mm", Rule::lower},
    {"linalg_vecdot", Rule::lower},
    {"baddbmm", Rule::lower},
    {"addmm", Rule::lower},
    {"_addmm_activation", Rule::lower},
    {"addbmm", Rule::lower},
    {"linear", Rule::lower},
    {"_convolution.deprecated", Rule::lower},
    {"matmul", Rule::lower},
    {"conv_tbc", Rule::lower},
    {"mkldnn_rnn_layer", Rule::lower},
    {"conv_transpose1d", Rule::lower},
    {"conv_transpose2d.input", Rule::lower},
    {"conv_transpose3d.input", Rule::lower},
    {"prelu", Rule::lower},
    {"scaled_dot_product_attention", Rule::lower},
    {"_native_multi_head_attention", Rule::lower},
    {"avg_pool3d", Rule::fp32},
    {"adaptive_avg_pool3d", Rule::fp32},
    {"adaptive_max_pool3d", Rule::fp32},
    {"max_pool3d", Rule::fp32},
    {"max_unpool2d", Rule::fp32},
    {"max_unpool3d", Rule::fp32},
    {"fractional_max_pool2d", Rule::fp32},
    {"fractional_max_pool3d", Rule::fp32},
    {"reflection_pad1d", Rule::fp32},
    {"reflection_pad2d", Rule::fp32},
    {"replication_pad1d", Rule::fp32},
    {"replication_pad2d", Rule::fp32},
    {"replication_pad3d", Rule::fp32},
    {"grid_sampler", Rule::fp32},
    {"grid_sampler_2d", Rule::fp32},
    {"grid_sampler_3d", Rule::fp32},
    {"_grid_sampler_2d_cpu_fallback", Rule::fp32},
    {"polar", Rule::fp32},
    {"view_as_complex", Rule::fp32},
    {"prod", Rule::fp32},
    {"prod.dim_int", Rule::fp32},
    {"quantile", Rule::fp32},
    {"quantile.scalar", Rule::fp32},
    {"nanquantile", Rule::fp32},
    {"nanquantile.scalar", Rule::fp32},
    {"cdist", Rule::fp32},
    {"trace", Rule::fp32},
    {"stft", Rule::fp32},
    {"stft.center", Rule::fp32},
    {"fft_fft", Rule::fp32},
    {"fft_ifft", Rule::fp32},
    {"fft_fft2", Rule::fp32},
    {"fft_ifft2", Rule::fp32},
    {"fft_fftn", Rule::fp32},
    {"fft_ifftn", Rule::fp32},
    {"fft_rfft", Rule::fp32},
    {"fft_irfft", Rule::fp32},
    {"fft_rfft2", Rule::fp32},
    {"fft_irfft2", Rule::fp32},
    {"fft_rfftn", Rule::fp32},
    {"fft_irfftn", Rule::fp32},
    {"fft_hfft", Rule::fp32},
    {"fft_ihfft", Rule::fp32},
    {"binary_cross_entropy", Rule::fp32},
    {"binary_cross_entropy_with_logits", Rule::fp32},
    {"mse_loss", Rule::fp32},
    {"l1_loss", Rule::fp32},
    {"smooth_l1_loss", Rule::fp32},
    {"huber_loss", Rule::fp32},
    {"nll_loss", Rule::fp32},
    {"nll_loss2d", Rule::fp32},
    {"cross_entropy_loss", Rule::fp32},
    {"ctc_loss.IntList", Rule::fp32},
    {"ctc_loss.Tensor", Rule::fp32},
    {"kl_div", Rule::fp32},
    {"poisson_nll_loss", Rule::fp32},
    {"cosine_embedding_loss", Rule::fp32},
    {"hinge_embedding_loss", Rule::fp32},
    {"margin_ranking_loss", Rule::fp32},
    {"soft_margin_loss", Rule::fp32},
    {"triplet_margin_loss", Rule::fp32},
    {"multi_margin_loss", Rule::fp32},
    {"multilabel_margin_loss", Rule::fp32},
    {"multilabel_margin_loss_forward", Rule::fp32},
    {"fake_quantize_per_tensor_affine", Rule::fp32},
    {"cholesky", Rule::fp32},
    {"cholesky_inverse", Rule::fp32},
    {"cholesky_solve", Rule::fp32},
    {"inverse", Rule::fp32},
    {"pinverse", Rule::fp32},
    {"lu_solve", Rule::fp32},
    {"_lu_with_info", Rule::fp32},
    {"geqrf", Rule::fp32},
    {"orgqr", Rule::fp32},
    {"ormqr", Rule::fp32},
    {"qr", Rule::fp32},
    {"svd", Rule::fp32},
    {"triangular_solve", Rule::fp32},
    {"linalg_cholesky", Rule::fp32},
    {"linalg_cholesky_ex", Rule::fp32},
    {"linalg_cond", Rule::fp32},
    {"linalg_cond.p_str", Rule::fp32},
    {"linalg_eig", Rule::fp32},
    {"linalg_eigh", Rule::fp32},
    {"linalg_eigvals", Rule::fp32},
    {"linalg_eigvalsh", Rule::fp32},
    {"linalg_householder_product", Rule::fp32},
    {"linalg_inv", Rule::fp32},
    {"linalg_inv_ex", Rule::fp32},
    {"linalg_lstsq", Rule::fp32},
    {"linalg_matrix_rank", Rule::fp32},
    {"linalg_matrix_rank.atol_rtol_tensor", Rule::fp32},
    {"linalg_matrix_rank.atol_rtol_float", Rule::fp32},
    {"linalg_matrix_rank.tol_tensor", Rule::fp32},
    {"linalg_qr", Rule::fp32},
    {"linalg_solve", Rule::fp32},
    {"linalg_svd", Rule::fp32},
    {"linalg_svdvals", Rule::fp32},
    {"linalg_tensorinv", Rule::fp32},
    {"linalg_tensorsolve", Rule::fp32},
    {"cat", Rule::widest},
    {"stack", Rule::widest},
    {"index_copy", Rule::widest},
};

}  // namespace

std::string_view to_string(Rule rule) {
  switch (rule) {
    case Rule::lower:
      return "lower";
    case Rule::fp32:
      return "fp32";
    case Rule::fp32_output:
      return "fp32_output";
    case Rule::widest:
      return "widest";
    case Rule::keep:
      return "keep";
    case Rule::banned:
      return "banned";
  }
  MANTISSA_ASSERT(false);
}

Rule parse_rule(std::string_view name) {
  std::vector<std::string> names;
  for (Rule rule : kRules) {
    if (to_string(rule) == name) {
      return rule;
    }
    names.emplace_back(to_string(rule));
  }
  throw InvalidArgument(concat("rule: unknown \"", name, "\"", suggestion(name, names)));
}

std::vector<std::string> op_table_names() { return {"torch", "torch-cpu", "fp32"}; }

std::span<const OpRule> op_table(std::string_view name) {
  if (name == "torch") {
    return kTorch;
  }
  if (name == "torch-cpu") {
    return kTorchCpu;
  }
  if (name == "fp32") {
    return {};
  }
  throw InvalidArgument(
      concat("policy: unknown base \"", name, "\"", suggestion(name, op_table_names())));
}

}  // namespace mantissa::amp
