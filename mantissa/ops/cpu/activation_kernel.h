#pragma once

#include <cstdint>

/// Activations of `count` numbers in FP32. Relative errors of a few 2^-24.
namespace mantissa::ops::cpu {

/// x sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x^3): the tanh form of GELU (Hendrycks and
/// Gimpel, 2016).
void gelu(const float* x, int64_t count, float* out);

/// `out` as above, and grad_x = grad_out times its derivative; `grad_x` may be `grad_out`.
void gelu_gradient(const float* x, const float* grad_out, int64_t count, float* out, float* grad_x);

/// gate sigmoid(gate) up: SwiGLU (Shazeer, 2020).
void swiglu(const float* gate, const float* up, int64_t count, float* out);

/// `grad_up` may be `grad_out`.
void swiglu_gradient(const float* gate, const float* up, const float* grad_out, int64_t count,
                     float* out, float* grad_gate, float* grad_up);

/// Of `heads` heads of 2 `half` numbers each, the pairs (i, half + i) rotated by the angle with
/// cosine[i] and sine[i]; back when `inverse`.
void rotate(const float* x, const float* cosine, const float* sine, int64_t heads, int64_t half,
            bool inverse, float* out);

}  // namespace mantissa::ops::cpu
