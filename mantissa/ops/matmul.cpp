#include "mantissa/ops/matmul.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_addmm_activation_cpu_dispatch.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmv_cpu_dispatch.h>
#include <ATen/ops/addr_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/dot_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/vdot_cpu_dispatch.h>
#include <torch/library.h>

#include "mantissa/ops/compute_path.h"
#include "mantissa/ops/panel_product.h"
#include "mantissa/ops/parallel.h"
#include "mantissa/tensor/dtype.h"

// LibTorch's own kernels are called as at::cpu::NAME: past the dispatcher, which would come back
// here.
namespace mantissa::ops {
namespace {

using at::Scalar;
using at::Tensor;
using numerics::Format;

// What a template below takes as kDim where it multiplies no two matrices.
constexpr int64_t kNoMatrices = 0;

// Whether a product of matrices (`dim` 2) or batches of them (3) has operands that fit, with
// numbers in them. What does not fit is for LibTorch to refuse.
bool suits_panels(int64_t dim, const Tensor& a, const Tensor& b) {
  return dim != kNoMatrices && a.dim() == dim && b.dim() == dim &&
         (dim == 2 || a.size(0) == b.size(0)) && a.size(-1) == b.size(-2) && a.size(-1) > 0 &&
         a.numel() > 0 && b.numel() > 0;
}

bool has_shape_of_product(const Tensor& self, const Tensor& a, const Tensor& b) {
  return self.dim() == a.dim() && (a.dim() == 2 || self.size(0) == a.size(0)) &&
         self.size(-2) == a.size(-2) && self.size(-1) == b.size(-1);
}

// The batch's matrix `index`, or the matrix itself.
const void* matrix_at(const Tensor& tensor, int64_t index) {
  const int64_t offset = tensor.dim() == 3 ? index * tensor.stride(0) : 0;
  return static_cast<const char*>(tensor.const_data_ptr()) +
         offset * static_cast<int64_t>(tensor.element_size());
}

// a b, or beta self + alpha a b, of two matrices or a batch of them that suit panels.
Tensor by_panels(ComputePath path, const Tensor& a_in, const Tensor& b_in, const Tensor& self_in,
                 float beta, float alpha) {
  const Tensor a = in_lines(a_in);
  const Tensor b = in_lines(b_in);
  const Format stored = tensor::format_of(a.scalar_type());
  const Format read = factor_format(path, a.scalar_type());
  const int64_t m = a.size(-2);
  const int64_t n = b.size(-1);
  const int64_t batch = a.dim() == 3 ? a.size(0) : 1;
  Tensor out =
      a.dim() == 3 ? at::empty({batch, m, n}, a.options()) : at::empty({m, n}, a.options());
  Tensor self;
  if (self_in.defined() && beta != 0) {
    self = self_in.expand(out.sizes());
    self = self.stride(-1) == 1 ? self : self.contiguous();
  }
  void* const out_data = out.mutable_data_ptr();
  const auto multiply = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      ProductOutput output = {
          static_cast<char*>(out_data) + i * m * n * static_cast<int64_t>(out.element_size()),
          stored, n};
      output.alpha = alpha;
      if (self.defined()) {
        output.beta = beta;
        output.addend = matrix_at(self, i);
        output.addend_row_stride = self.stride(-2);
      }
      panel_product({matrix_at(a, i), read, a.stride(-2), a.stride(-1)},
                    {matrix_at(b, i), read, b.stride(-2), b.stride(-1)}, m, n, a.size(-1), output);
    }
  };
  if (batch >= at::get_num_threads()) {
    parallel_for(0, batch, 1, multiply);
  } else {
    multiply(0, batch);
  }
  return out;
}

// a b in the dtype of a, by panels or by the FP32 kernel on whole tensors.
template <int64_t kDim, auto kStock>
Tensor multiplied(ComputePath path, const Tensor& a, const Tensor& b) {
  return suits_panels(kDim, a, b) ? by_panels(path, a, b, {}, 0, 1)
                                  : kStock(factor(path, a), factor(path, b)).to(a.scalar_type());
}

// beta self + alpha a b, likewise.
template <int64_t kDim, auto kStock>
Tensor added(ComputePath path, const Tensor& self, const Tensor& a, const Tensor& b,
             const Scalar& beta, const Scalar& alpha) {
  return suits_panels(kDim, a, b)
             ? by_panels(path, a, b, self, beta.to<float>(), alpha.to<float>())
             : kStock(addend(self), factor(path, a), factor(path, b), beta, alpha)
                   .to(a.scalar_type());
}

// Multiplications below which the call of oneDNN, some 26 us, is longer than ours takes in all.
constexpr int64_t kSmallProduct = int64_t{1} << 21;

CpuWork work_of(const Tensor& a, const Tensor& b) {
  const bool are_matrices = a.dim() >= 2 && b.dim() == a.dim();
  return are_matrices && a.numel() * b.size(-1) <= kSmallProduct ? CpuWork::small_products
                                                                 : CpuWork::products;
}

// a b
template <int64_t kDim, auto kStock>
Tensor product(const Tensor& a, const Tensor& b) {
  const ComputePath path = compute_path({a.scalar_type(), b.scalar_type()}, work_of(a, b));
  return path == ComputePath::stock ? kStock(a, b) : multiplied<kDim, kStock>(path, a, b);
}

template <int64_t kDim, auto kStock, auto kStockOut>
Tensor& product_out(const Tensor& a, const Tensor& b, Tensor& out) {
  const ComputePath path =
      compute_path({a.scalar_type(), b.scalar_type(), out.scalar_type()}, work_of(a, b));
  if (path == ComputePath::stock) {
    return kStockOut(a, b, out);
  }
  return store(multiplied<kDim, kStock>(path, a, b), out);
}

// beta self + alpha a b
template <int64_t kDim, auto kStock>
Tensor sum(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
           const Scalar& alpha) {
  const ComputePath path =
      compute_path({self.scalar_type(), a.scalar_type(), b.scalar_type()}, work_of(a, b));
  return path == ComputePath::stock ? kStock(self, a, b, beta, alpha)
                                    : added<kDim, kStock>(path, self, a, b, beta, alpha);
}

template <int64_t kDim, auto kStock, auto kStockOut>
Tensor& sum_out(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                const Scalar& alpha, Tensor& out) {
  const ComputePath path = compute_path(
      {self.scalar_type(), a.scalar_type(), b.scalar_type(), out.scalar_type()}, work_of(a, b));
  if (path == ComputePath::stock) {
    return kStockOut(self, a, b, beta, alpha, out);
  }
  return store(added<kDim, kStock>(path, self, a, b, beta, alpha), out);
}

template <int64_t kDim, auto kStock>
Tensor& sum_(Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
             const Scalar& alpha) {
  const ComputePath path =
      compute_path({self.scalar_type(), a.scalar_type(), b.scalar_type()}, work_of(a, b));
  if (path == ComputePath::stock) {
    return kStock(self, a, b, beta, alpha);
  }
  if (suits_panels(kDim, a, b) && has_shape_of_product(self, a, b)) {
    return self.copy_(by_panels(path, a, b, self, beta.to<float>(), alpha.to<float>()));
  }
  // The FP32 in-place form checks the shape of `self`, which a copy into it would broadcast.
  Tensor wide = addend(self);
  kStock(wide, factor(path, a), factor(path, b), beta, alpha);
  return path == ComputePath::tf32 ? self : self.copy_(wide);
}

// relu or gelu (beta self + alpha a b)
Tensor addmm_activation(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                        const Scalar& alpha, bool use_gelu) {
  const ComputePath path =
      compute_path({self.scalar_type(), a.scalar_type(), b.scalar_type()}, work_of(a, b));
  if (path == ComputePath::stock) {
    return at::cpu::_addmm_activation(self, a, b, beta, alpha, use_gelu);
  }
  return at::cpu::_addmm_activation(addend(self), factor(path, a), factor(path, b), beta, alpha,
                                    use_gelu)
      .to(a.scalar_type());
}

Tensor& addmm_activation_out(const Tensor& self, const Tensor& a, const Tensor& b,
                             const Scalar& beta, const Scalar& alpha, bool use_gelu, Tensor& out) {
  const ComputePath path = compute_path(
      {self.scalar_type(), a.scalar_type(), b.scalar_type(), out.scalar_type()}, work_of(a, b));
  if (path == ComputePath::stock) {
    return at::cpu::_addmm_activation_outf(self, a, b, beta, alpha, use_gelu, out);
  }
  return store(at::cpu::_addmm_activation(addend(self), factor(path, a), factor(path, b), beta,
                                          alpha, use_gelu),
               out);
}

}  // namespace

void register_matmul(torch::Library& library) {
  namespace stock = at::cpu;
  library.impl("mm", &product<2, &stock::mm>);
  library.impl("mm.out", &product_out<2, &stock::mm, &stock::mm_outf>);
  library.impl("bmm", &product<3, &stock::bmm>);
  library.impl("bmm.out", &product_out<3, &stock::bmm, &stock::bmm_outf>);
  library.impl("dot", &product<kNoMatrices, &stock::dot>);
  library.impl("vdot", &product<kNoMatrices, &stock::vdot>);

  library.impl("addmm", &sum<2, &stock::addmm>);
  library.impl("addmm.out", &sum_out<2, &stock::addmm, &stock::addmm_outf>);
  library.impl("addmm_", &sum_<2, &stock::addmm_>);
  library.impl("baddbmm", &sum<3, &stock::baddbmm>);
  library.impl("baddbmm.out", &sum_out<3, &stock::baddbmm, &stock::baddbmm_outf>);
  library.impl("baddbmm_", &sum_<3, &stock::baddbmm_>);
  library.impl("addmv", &sum<kNoMatrices, &stock::addmv>);
  library.impl("addmv.out", &sum_out<kNoMatrices, &stock::addmv, &stock::addmv_outf>);
  library.impl("addmv_", &sum_<kNoMatrices, &stock::addmv_>);
  library.impl("addr", &sum<kNoMatrices, &stock::addr>);
  library.impl("addr.out", &sum_out<kNoMatrices, &stock::addr, &stock::addr_outf>);

  library.impl("_addmm_activation", &addmm_activation);
  library.impl("_addmm_activation.out", &addmm_activation_out);
}

}  // namespace mantissa::ops
