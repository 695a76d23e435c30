#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/function_schema.h>

#include "mantissa/monitor/trace.h"
#include "mantissa/numerics/format.h"

namespace mantissa::monitor {

/// `add` for `aten::add_`: both forms do the same arithmetic.
std::string base_name(const TracedCall& call);

/// The argument of that name; null when the operation has none.
const c10::IValue* argument(const TracedCall& call, std::string_view name);

/// The argument as a tensor; undefined when there is none.
at::Tensor tensor_argument(const TracedCall& call, std::string_view name);

/// What the step called, or the node of the backward pass; `call` itself when it is that.
const TracedCall& outermost(const TracedCall& call);

/// What a fault of `call` is told of: what the step called, or the node of the backward pass. What
/// the engine does to give a node's gradient the shape and format of its input is part of that
/// node; adding it to those of other uses is of none.
std::string blamed_name(const TracedCall& call);

/// Is it `to`, or what that is made of?
bool is_cast(const TracedCall& call);

/// Does the result share the memory of an argument, which the operation leaves as it is?
bool is_view(const c10::Argument& result);

/// The name of a node out of that of its event: `MmBackward0`; of a function in C++, whose node
/// LibTorch calls by its type, `LayerNormBackward`.
MANTISSA_API std::string node_name(const std::string& event);

/// Is the node of the backward pass that of an operation which returns a view? It hands on the
/// numbers that it gets.
bool is_view_node(std::string_view name);

/// The first result; undefined when the call threw or has none.
at::Tensor result(const TracedCall& call);

/// bf16 or fp16; nothing for other dtypes and undefined tensors.
std::optional<numerics::Format> format_16bit(const at::Tensor& tensor);

/// Can its numbers be read: defined, dense, with elements, on a device that holds them?
bool is_readable(const at::Tensor& tensor);

/// Readable and floating point, of 64 bits or fewer.
bool holds_reals(const at::Tensor& tensor);

/// Every tensor among `values`, those in lists too.
std::vector<at::Tensor> tensors_in(const std::vector<c10::IValue>& values);

/// Waits for the device.
bool has_any(const at::Tensor& mask);
int64_t num_true(const at::Tensor& mask);
bool all_finite(const at::Tensor& tensor);
bool all_finite(const std::vector<at::Tensor>& tensors);  // those that hold reals
double largest_magnitude(const at::Tensor& tensor);

/// Those of the tensor that are not finite, in order, 1-d.
at::Tensor nonfinite_values(const at::Tensor& tensor);

/// The first result of the same call with FP32 in place of 16-bit tensors.
at::Tensor result_in_fp32(const TracedCall& call);

/// Six digits, the shortest form.
std::string text(double value);

/// `fp32`, `bf16`, ... ; the dtype's name for those that are no training format.
std::string format_name(const at::Tensor& tensor);

}  // namespace mantissa::monitor
