#include "mantissa/ops/matmul.h"

#include <ATen/ops/_addmm_activation_cpu_dispatch.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmv_cpu_dispatch.h>
#include <ATen/ops/addr_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/dot_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/vdot_cpu_dispatch.h>
#include <torch/library.h>

#include "mantissa/ops/compute_path.h"

// LibTorch's own kernels are called as at::cpu::NAME: past the dispatcher, which would come back
// here.
namespace mantissa::ops {
namespace {

using at::Scalar;
using at::Tensor;

// a b
template <auto kStock>
Tensor product(const Tensor& a, const Tensor& b) {
  const ComputePath path = compute_path({a.scalar_type(), b.scalar_type()});
  if (path == ComputePath::stock) {
    return kStock(a, b);
  }
  return kStock(factor(path, a), factor(path, b)).to(a.scalar_type());
}

template <auto kStock, auto kStockOut>
Tensor& product_out(const Tensor& a, const Tensor& b, Tensor& out) {
  const ComputePath path = compute_path({a.scalar_type(), b.scalar_type(), out.scalar_type()});
  if (path == ComputePath::stock) {
    return kStockOut(a, b, out);
  }
  return store(kStock(factor(path, a), factor(path, b)), out);
}

// beta self + alpha a b
template <auto kStock>
Tensor sum(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
           const Scalar& alpha) {
  const ComputePath path = compute_path({self.scalar_type(), a.scalar_type(), b.scalar_type()});
  if (path == ComputePath::stock) {
    return kStock(self, a, b, beta, alpha);
  }
  return kStock(addend(self), factor(path, a), factor(path, b), beta, alpha).to(a.scalar_type());
}

template <auto kStock, auto kStockOut>
Tensor& sum_out(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                const Scalar& alpha, Tensor& out) {
  const ComputePath path =
      compute_path({self.scalar_type(), a.scalar_type(), b.scalar_type(), out.scalar_type()});
  if (path == ComputePath::stock) {
    return kStockOut(self, a, b, beta, alpha, out);
  }
  return store(kStock(addend(self), factor(path, a), factor(path, b), beta, alpha), out);
}

template <auto kStock>
Tensor& sum_(Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
             const Scalar& alpha) {
  const ComputePath path = compute_path({self.scalar_type(), a.scalar_type(), b.scalar_type()});
  if (path == ComputePath::stock) {
    return kStock(self, a, b, beta, alpha);
  }
  // The FP32 in-place form checks the shape of `self`, which a copy into it would broadcast.
  Tensor wide = addend(self);
  kStock(wide, factor(path, a), factor(path, b), beta, alpha);
  return path == ComputePath::tf32 ? self : self.copy_(wide);
}

// relu or gelu (beta self + alpha a b)
Tensor addmm_activation(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                        const Scalar& alpha, bool use_gelu) {
  const ComputePath path = compute_path({self.scalar_type(), a.scalar_type(), b.scalar_type()});
  if (path == ComputePath::stock) {
    return at::cpu::_addmm_activation(self, a, b, beta, alpha, use_gelu);
  }
  return at::cpu::_addmm_activation(addend(self), factor(path, a), factor(path, b), beta, alpha,
                                    use_gelu)
      .to(a.scalar_type());
}

Tensor& addmm_activation_out(const Tensor& self, const Tensor& a, const Tensor& b,
                             const Scalar& beta, const Scalar& alpha, bool use_gelu, Tensor& out) {
  const ComputePath path =
      compute_path({self.scalar_type(), a.scalar_type(), b.scalar_type(), out.scalar_type()});
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
  library.impl("mm", &product<&stock::mm>);
  library.impl("mm.out", &product_out<&stock::mm, &stock::mm_outf>);
  library.impl("bmm", &product<&stock::bmm>);
  library.impl("bmm.out", &product_out<&stock::bmm, &stock::bmm_outf>);
  library.impl("dot", &product<&stock::dot>);
  library.impl("vdot", &product<&stock::vdot>);

  library.impl("addmm", &sum<&stock::addmm>);
  library.impl("addmm.out", &sum_out<&stock::addmm, &stock::addmm_outf>);
  library.impl("addmm_", &sum_<&stock::addmm_>);
  library.impl("baddbmm", &sum<&stock::baddbmm>);
  library.impl("baddbmm.out", &sum_out<&stock::baddbmm, &stock::baddbmm_outf>);
  library.impl("baddbmm_", &sum_<&stock::baddbmm_>);
  library.impl("addmv", &sum<&stock::addmv>);
  library.impl("addmv.out", &sum_out<&stock::addmv, &stock::addmv_outf>);
  library.impl("addmv_", &sum_<&stock::addmv_>);
  library.impl("addr", &sum<&stock::addr>);
  library.impl("addr.out", &sum_out<&stock::addr, &stock::addr_outf>);

  library.impl("_addmm_activation", &addmm_activation);
  library.impl("_addmm_activation.out", &addmm_activation_out);
}

}  // namespace mantissa::ops
