#include "mantissa/ops/rotary.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/cpu/activation_kernel.h"
#include "mantissa/ops/parallel.h"
#include "mantissa/ops/tensor_blocks.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

struct CachedTables {
  // The last one: without numbers.
  std::tuple<int64_t, int64_t, double, at::ScalarType, at::Device, bool> key;
  std::pair<at::Tensor, at::Tensor> tables;
};

constexpr size_t kCachedTables = 4;

std::pair<at::Tensor, at::Tensor> compute_tables(int64_t length, int64_t head_width, double base,
                                                 at::ScalarType dtype, at::Device device) {
  const at::Tensor cosines = at::empty({length, head_width}, at::kDouble);
  const at::Tensor sines = at::empty({length, head_width}, at::kDouble);
  auto* cosine = cosines.mutable_data_ptr<double>();
  auto* sine = sines.mutable_data_ptr<double>();
  const int64_t half = head_width / 2;
  for (int64_t t = 0; t < (tensor::is_shapes_only() ? 0 : length); ++t) {
    for (int64_t c = 0; c < head_width; ++c) {
      const double frequency =
          std::pow(base, -2.0 * static_cast<double>(c % half) / static_cast<double>(head_width));
      const double angle = static_cast<double>(t) * frequency;
      cosine[t * head_width + c] = std::cos(angle);
      sine[t * head_width + c] = std::sin(angle);
    }
  }
  // Through FP32, so that a 16-bit table is the rounding of the FP32 one.
  return {cosines.to(at::kFloat).to(dtype).to(device), sines.to(at::kFloat).to(dtype).to(device)};
}

}  // namespace

std::pair<at::Tensor, at::Tensor> rotary_tables(int64_t length, int64_t head_width, double base,
                                                at::ScalarType dtype, at::Device device) {
  MANTISSA_CHECK(head_width > 0 && head_width % 2 == 0, InvalidArgument, "rotary: head width ",
                 head_width, "; it must be even and positive");
  thread_local std::vector<CachedTables> cache;
  const bool is_empty = tensor::is_shapes_only();
  const auto key = std::make_tuple(length, head_width, base, dtype, device, is_empty);
  for (const CachedTables& entry : cache) {
    if (entry.key == key) {
      return entry.tables;
    }
  }
  const c10::InferenceMode savable(false);  // turns grad mode on as well
  const at::NoGradGuard no_grad;
  if (is_empty) {
    tensor::at_end_of_shapes_only([] { cache.clear(); });
  } else if (cache.size() == kCachedTables) {
    cache.erase(cache.begin());
  }
  cache.push_back({key, compute_tables(length, head_width, base, dtype, device)});
  return cache.back().tables;
}

at::Tensor rotate(const at::Tensor& x, double base) {
  const int64_t width = x.size(-1);
  const auto [cosines, sines] = rotary_tables(x.size(-2), width, base, x.scalar_type(), x.device());
  const at::Tensor low = x.narrow(-1, 0, width / 2);
  const at::Tensor high = x.narrow(-1, width / 2, width / 2);
  return x.mul(cosines).add(at::cat({high.neg(), low}, -1).mul(sines));
}

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_qkv(const Tensor& qkv) {
  MANTISSA_CHECK(qkv.dim() == 5 && qkv.size(2) == 3 && qkv.size(4) % 2 == 0 && qkv.size(4) > 0,
                 InvalidArgument, "rotary_attention: qkv has shape ", qkv.sizes(),
                 "; pass (batch, tokens, 3, heads, width) with an even width");
}

bool has_kernel(const Tensor& qkv) {
  return qkv.is_cpu() && qkv.numel() > 0 &&
         (qkv.scalar_type() == at::kFloat || tensor::is_16bit(qkv.scalar_type()));
}

// (B, T, H, W) as attention takes it, and back.
Tensor heads_first(const Tensor& tensor) { return tensor.transpose(1, 2); }

struct Workspace {
  Scratch from, to;
};

Workspace& workspace() {
  static thread_local Workspace instance;
  return instance;
}

// call(token, cosines, sines) for all tokens of all sequences, with the tables of their positions.
template <typename Call>
void for_tokens(const Tensor& qkv, double base, const Call& call) {
  const int64_t length = qkv.size(1);
  const int64_t width = qkv.size(4);
  const auto [cosines, sines] = rotary_tables(length, width, base, at::kFloat);
  const auto* cosine = cosines.const_data_ptr<float>();
  const auto* sine = sines.const_data_ptr<float>();
  constexpr int64_t kGrain = 16;
  parallel_for(0, qkv.size(0) * length, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const int64_t row = token % length * width;
      call(token, cosine + row, sine + row);
    }
  });
}

// Queries and keys, rotated, each (B, T, H, W).
std::pair<Tensor, Tensor> rotated(const Tensor& qkv, double base) {
  const int64_t heads = qkv.size(3);
  const int64_t width = qkv.size(4);
  const int64_t size = heads * width;
  const std::vector<int64_t> shape = {qkv.size(0), qkv.size(1), heads, width};
  std::pair<Tensor, Tensor> results = {at::empty(shape, qkv.options()),
                                       at::empty(shape, qkv.options())};
  const TensorBlocks from(qkv);
  const TensorBlocks queries(results.first);
  const TensorBlocks keys(results.second);
  for_tokens(qkv, base, [&](int64_t token, const float* cosine, const float* sine) {
    Workspace& space = workspace();
    const float* numbers = from.read(token * 3 * size, 2 * size, space.from);
    for (const TensorBlocks* to : {&queries, &keys}) {
      float* out = to->place(token * size, size, space.to);
      cpu::rotate(numbers, cosine, sine, heads, width / 2, /*inverse=*/false, out);
      to->store(token * size, size, out);
      numbers += size;
    }
  });
  return results;
}

// The gradient of qkv, of those of the rotated queries and keys and of the values.
Tensor rotated_back(const Tensor& qkv, double base, const Tensor& grad_query,
                    const Tensor& grad_key, const Tensor& grad_value) {
  const int64_t heads = qkv.size(3);
  const int64_t width = qkv.size(4);
  const int64_t size = heads * width;
  Tensor result = at::empty(qkv.sizes(), qkv.options());
  const TensorBlocks to(result);
  const TensorBlocks queries(grad_query);
  const TensorBlocks keys(grad_key);
  const TensorBlocks values(grad_value);
  for_tokens(qkv, base, [&](int64_t token, const float* cosine, const float* sine) {
    Workspace& space = workspace();
    const int64_t first = token * 3 * size;
    float* out = to.place(first, 3 * size, space.to);
    cpu::rotate(queries.read(token * size, size, space.from), cosine, sine, heads, width / 2,
                /*inverse=*/true, out);
    cpu::rotate(keys.read(token * size, size, space.from), cosine, sine, heads, width / 2,
                /*inverse=*/true, out + size);
    std::copy_n(values.read(token * size, size, space.from), size, out + 2 * size);
    to.store(first, 3 * size, out);
  });
  return result;
}

struct Attended {
  Tensor out;        // (B, H, T, W)
  Tensor logsumexp;  // (B, H, T)
};

Attended attend(const Tensor& qkv, double base, bool causal) {
  const auto [query, key] = rotated(qkv, base);
  auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      heads_first(query), heads_first(key), heads_first(qkv.select(2, 2)), /*dropout_p=*/0, causal);
  return {out, logsumexp};
}

struct RotaryAttention : torch::autograd::Function<RotaryAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& qkv_in, double base, bool causal) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensor qkv = qkv_in.contiguous();
    const auto [out, logsumexp] = attend(qkv, base, causal);
    context->save_for_backward({qkv, out, logsumexp});
    context->saved_data["base"] = base;
    context->saved_data["causal"] = causal;
    return heads_first(out);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    MANTISSA_CHECK(!at::GradMode::is_enabled(), Unsupported,
                   "rotary_attention: its gradients are to be differentiated, which is not "
                   "supported; use ops::rotate and at::scaled_dot_product_attention there");
    const variable_list saved = context->get_saved_variables();
    const Tensor& qkv = saved[0];
    const double base = context->saved_data["base"].toDouble();
    const auto [query, key] = rotated(qkv, base);
    const auto [grad_query, grad_key, grad_value] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            heads_first(gradients[0]), heads_first(query), heads_first(key),
            heads_first(qkv.select(2, 2)), saved[1], saved[2], /*dropout_p=*/0,
            context->saved_data["causal"].toBool());
    const auto tokens_first = [](const Tensor& tensor) { return heads_first(tensor).contiguous(); };
    return {rotated_back(qkv, base, tokens_first(grad_query), tokens_first(grad_key),
                         tokens_first(grad_value)),
            Tensor(), Tensor()};
  }
};

Tensor composed(const Tensor& qkv, double base, bool causal) {
  const auto part = [&qkv](int64_t index) { return heads_first(qkv.select(2, index)); };
  return heads_first(at::scaled_dot_product_attention(rotate(part(0), base), rotate(part(1), base),
                                                      part(2), /*attn_mask=*/{}, /*dropout_p=*/0,
                                                      causal));
}

Tensor with_autograd(const Tensor& qkv, double base, bool causal) {
  check_qkv(qkv);
  return has_kernel(qkv) ? RotaryAttention::apply(qkv, base, causal) : composed(qkv, base, causal);
}

Tensor without_autograd(const Tensor& qkv, double base, bool causal) {
  check_qkv(qkv);
  return has_kernel(qkv) ? heads_first(attend(qkv.contiguous(), base, causal).out)
                         : composed(qkv, base, causal);
}

TORCH_LIBRARY_FRAGMENT(mantissa, library) {
  library.def("rotary_attention(Tensor qkv, float base, bool causal) -> Tensor");
}

TORCH_LIBRARY_IMPL(mantissa, CompositeExplicitAutograd, library) {
  library.impl("rotary_attention", &without_autograd);
}

TORCH_LIBRARY_IMPL(mantissa, Autograd, library) {
  library.impl("rotary_attention", &with_autograd);
}

}  // namespace

Tensor rotary_attention(const Tensor& qkv, double base, bool causal) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mantissa::rotary_attention", "")
                                    .typed<decltype(with_autograd)>();
  return operation.call(qkv, base, causal);
}

}  // namespace mantissa::ops
