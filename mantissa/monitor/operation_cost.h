#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/ivalue.h>

#include "mantissa/base/api.h"

namespace mantissa::monitor {

/// What an operation is to 16 bits.
enum class OperationKind : uint8_t {
  product,  // multiplies and adds: what 16-bit units compute
  cast,     // from one floating-point format to another, of more than one number
  view,     // computes nothing
  other,    // element-wise, sums, norms, losses: at most half of the bytes
};

/// The enumerator, as in records.
MANTISSA_API std::string_view to_string(OperationKind kind);

/// What one call of an operation has to do.
struct OperationCost {
  OperationKind kind = OperationKind::other;
  double flops = 0;                  // of a product: a multiplication and an addition are two
  std::vector<size_t> factors = {};  // of a product: the arguments that it multiplies
  bool is_aligned = true;  // whether each side of a product of matrices is a multiple of 8, as the
                           // 16-bit units of GPUs want it
};

/// Of products, convolutions, attention (of which a causal mask leaves half) and the fused linear
/// and cross-entropy, forward and backward, by the operation that computes: aten::linear calls
/// aten::mm, and is `other`. `arguments` are those of the schema. Unknown operations, and calls
/// with arguments that their kernel will refuse, are `other`. Never throws.
MANTISSA_API OperationCost operation_cost(std::string_view name,
                                          std::span<const c10::IValue> arguments);

/// Of all tensors among `values`, at most what their memory holds.
MANTISSA_API double tensor_bytes(std::span<const c10::IValue> values);

}  // namespace mantissa::monitor
