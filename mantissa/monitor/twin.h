#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/monitor/skip_reason.h"
#include "mantissa/numerics/format.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::monitor {

/// Of what a row is. The text of an enumerator is its name.
enum class TwinPlace : uint8_t {
  forward,    // what an operation returned
  backward,   // the gradient that arrives at the node of an operation, divided by the loss scale
  parameter,  // the gradient of a parameter, likewise
};

MANTISSA_API std::string_view to_string(TwinPlace place);

/// One value of a step beside that of its FP32 twin.
struct TwinRow {
  TwinPlace place = TwinPlace::forward;
  std::string scope;          // tensor::Scope of the forward operation
  std::string operation;      // `aten::mm`, `MmBackward0`; of a parameter its name
  std::string format;         // of the value: `fp16`
  double relative_error = 0;  // |a - b| / |b|, L2 norms; infinite where FP32 is finite and this not
  double cosine = 1;          // of the angle between both
  double mean_ulps = 0;       // of |a - b|, in ulps of the 16-bit format at b
  double max_ulps = 0;
  double zeros = 0;                   // share of the numbers that FP32 has and that are 0
  int64_t nonfinite = 0;              // numbers that are not finite where FP32 is
  std::optional<double> input_error;  // forward: the largest relative error among its inputs;
                                      // nothing where one has no partner in the twin
  std::optional<double> own_error;    // forward, in 16 bits: relative, of the kernel alone, against
                                      // the same operation in FP32 on the inputs that it got
  std::optional<double> bound;        // of own_error: what the format explains; of products
};

struct TwinOptions {
  numerics::Format format = numerics::Format::bf16;  // whose ulps are counted
  double scale = 1;                                  // of the loss; that of the twin is 1
  double limit = 0.1;  // relative error from which on a value has diverged
};

/// Why a row is the first to diverge.
enum class Divergence : uint8_t {
  nonfinite,  // FP32 is finite there
  own_error,  // beyond the bound: more than rounding
  error,      // beyond the limit, made of its inputs' errors, their casts and its own
  underflow,  // half of the numbers or more became 0
};

MANTISSA_API std::string_view to_string(Divergence divergence);

struct FirstDivergence {
  size_t row = 0;
  Divergence kind = Divergence::error;
  std::string why;  // one line, with the numbers
};

struct TwinReport {
  std::vector<TwinRow> rows;             // in the order of the step, then parameters
  std::optional<FirstDivergence> first;  // nothing: no value has diverged
  int64_t unmatched = 0;                 // values of one step that the other does not have
};

/// Runs a step twice from `point`, once as `loss` has it and once as its FP32 `twin`, forward and
/// backward, and compares value by value: each result of an operation that the step calls, each
/// gradient that arrives at its node, each gradient of a parameter. Both return the loss before
/// scaling, of the same weights and batch. Calls are paired by scope, name and count, so both must
/// make the same ones; views and casts are left out.
///
/// The first to diverge is the first row for which one of these holds:
///   - it is not finite where FP32 is;
///   - it is a gradient, half of whose numbers or more are 0 where those of FP32 are not;
///   - own_error > bound, which a product has: the L2 norm of numerics::dot_error_bound over its
///     results, for the inputs as they are and one rounding of the result;
///   - relative_error > limit.
/// Gradients are as before afterwards. Waits for the device at every call and keeps every value of
/// the twin: for one step, not for training. Throws as find_skip_reason.
MANTISSA_API TwinReport compare_with_twin(const ReplayPoint& point,
                                          const tensor::ParameterList& parameters,
                                          const std::function<at::Tensor()>& loss,
                                          const std::function<at::Tensor()>& twin,
                                          const TwinOptions& options = {});

/// Rows of parameters of which half of the gradient or more became 0.
MANTISSA_API std::vector<TwinRow> dead_gradients(const TwinReport& report);

}  // namespace mantissa::monitor
