#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/numerics/exponent_histogram.h"

namespace mantissa::monitor {

/// What a value is to a training step. The text of an enumerator is its name.
enum class ValueKind : uint8_t {
  activation,  // what an operation of the forward pass returned
  gradient,  // what arrives at a node of the backward pass, or at a parameter, with the loss scale
  weight,    // a parameter before the update
  update,    // its change
};

MANTISSA_API std::string_view to_string(ValueKind kind);

/// Magnitudes of all values of one kind, place and name.
struct Range {
  ValueKind kind = ValueKind::activation;
  std::string scope;   // tensor::Scope of the operation, or the path of the parameter
  std::string name;    // `aten::mm`, `MmBackward0`, `weight`
  std::string format;  // in which they were: `fp16`; `fp16 fp32` when in several
  numerics::ExponentHistogram values;
};

/// Of a CPU tensor in one reading by all threads; one of another device is copied, which waits for
/// it. FP64 counts as rounded to FP32. Throws InvalidArgument for a dtype that no training has.
MANTISSA_API numerics::ExponentHistogram histogram_of(const at::Tensor& tensor);

/// The ranges of a step, or of several.
class MANTISSA_API Ranges {
 public:
  /// Counts the values of a tensor; nothing for one that holds no reals. As histogram_of.
  void add(ValueKind kind, const std::string& scope, const std::string& name,
           const at::Tensor& tensor);

  void merge(const Ranges& other);
  void clear();

  /// In the order of their first values.
  const std::vector<Range>& all() const { return ranges_; }

 private:
  void add(const Range& range);

  std::vector<Range> ranges_;
  std::map<std::tuple<ValueKind, std::string, std::string>, size_t> index_;
};

/// One for each kind, scope and format, over all names. `name` is that of the largest value, or of
/// the first with one that is not finite.
MANTISSA_API std::vector<Range> by_scope(const std::vector<Range>& ranges);

/// What a format does to values, worst first.
enum class Verdict : uint8_t {
  not_finite,     // some are not, in the format they had
  overflow,       // finite ones overflow in that format
  near_overflow,  // the largest is within kNearBits of the largest number
  underflow,      // of those not 0, kFlushedShare or more become 0
  fits,
};

inline constexpr int kNearBits = 3;
inline constexpr double kFlushedShare = 0.05;

MANTISSA_API std::string_view to_string(Verdict verdict);

/// `format`: one of numerics::kNarrowFormats.
MANTISSA_API Verdict judge(const Range& range, numerics::Format format);

/// What to do about it, in half a line; empty when they fit.
MANTISSA_API std::string advice(const Range& range, numerics::Format format);

/// By verdict, then by headroom: what asks for something first.
MANTISSA_API std::vector<Range> worst_first(std::vector<Range> ranges, numerics::Format format);

/// `num` as a share of the values that are finite and not 0, from 0 to 1.
MANTISSA_API double share(const Range& range, int64_t num);

}  // namespace mantissa::monitor
