#include "mantissa/monitor/ranges.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <span>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "mantissa/base/error.h"
#include "mantissa/monitor/call_values.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::monitor {
namespace {

using numerics::ExponentHistogram;
using numerics::Format;

// Elements that a thread counts at a time.
constexpr int64_t kPiece = 1 << 16;

// Dense in memory, in whatever order: counts do not depend on it.
at::Tensor readable(const at::Tensor& tensor) {
  at::Tensor values = tensor.is_sparse() ? tensor.coalesce().values() : tensor;
  MANTISSA_CHECK(tensor::is_training_dtype(values.scalar_type()), InvalidArgument,
                 "histogram_of: the tensor is ", values.scalar_type(),
                 "; pass Float, BFloat16, Half or Double");
  if (values.scalar_type() == at::kDouble) {
    values = values.to(at::kFloat);
  }
  values = values.to(at::kCPU);
  return values.is_non_overlapping_and_dense() ? values : values.contiguous();
}

ExponentHistogram count(const at::Tensor& dense, int64_t begin, int64_t end) {
  const auto size = static_cast<size_t>(end - begin);
  if (dense.scalar_type() == at::kFloat) {
    return numerics::exponent_histogram(std::span(dense.const_data_ptr<float>() + begin, size));
  }
  const auto* patterns = static_cast<const uint16_t*>(dense.const_data_ptr()) + begin;
  return numerics::exponent_histogram(tensor::format_of(dense.scalar_type()),
                                      std::span(patterns, size));
}

void add_format(std::string& formats, const std::string& format) {
  if ((" " + formats + " ").find(" " + format + " ") == std::string::npos) {
    formats += (formats.empty() ? "" : " ") + format;
  }
}

bool is_worse(const ExponentHistogram& a, const ExponentHistogram& b) {
  if ((a.num_nonfinite() > 0) != (b.num_nonfinite() > 0)) {
    return a.num_nonfinite() > 0;
  }
  return a.num_nonfinite() == 0 && a.largest > b.largest;
}

// Of the format with most range of those that training runs in.
std::string elsewhere(const Range& range, Format format) {
  const std::string where =
      range.kind == ValueKind::weight
          ? concat("parameter:", range.scope, range.scope.empty() ? "" : ".", range.name, "=fp32")
      : range.scope.empty() ? concat(range.name, " in fp32")
                            : concat("scope:", range.scope, "=fp32");
  const bool bf16_helps = format != Format::bf16 && range.values.in(Format::bf16).overflow == 0;
  return concat(where, bf16_helps ? ", or bf16" : "");
}

}  // namespace

std::string_view to_string(ValueKind kind) {
  switch (kind) {
    case ValueKind::activation:
      return "activation";
    case ValueKind::gradient:
      return "gradient";
    case ValueKind::weight:
      return "weight";
    case ValueKind::update:
      return "update";
  }
  MANTISSA_ASSERT(false);
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::not_finite:
      return "not finite";
    case Verdict::overflow:
      return "overflow";
    case Verdict::near_overflow:
      return "near overflow";
    case Verdict::underflow:
      return "underflow";
    case Verdict::fits:
      return "fits";
  }
  MANTISSA_ASSERT(false);
}

ExponentHistogram histogram_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor dense = readable(tensor);
  const int64_t pieces = (dense.numel() + kPiece - 1) / kPiece;
  ExponentHistogram whole;
  std::mutex mutex;  // counts add up to the same in any order
  at::parallel_for(0, pieces, 1, [&](int64_t first, int64_t last) {
    const ExponentHistogram part =
        count(dense, first * kPiece, std::min(last * kPiece, dense.numel()));
    const std::scoped_lock lock(mutex);
    whole.merge(part);
  });
  return whole;
}

void Ranges::add(ValueKind kind, const std::string& scope, const std::string& name,
                 const at::Tensor& tensor) {
  const bool is_sparse = tensor.defined() && tensor.is_sparse();
  if (is_sparse || holds_reals(tensor)) {
    add(Range{kind, scope, name, format_name(tensor), histogram_of(tensor)});
  }
}

void Ranges::add(const Range& range) {
  const auto [found, is_new] =
      index_.try_emplace({range.kind, range.scope, range.name}, ranges_.size());
  if (is_new) {
    ranges_.push_back(range);
    return;
  }
  Range& known = ranges_[found->second];
  add_format(known.format, range.format);
  known.values.merge(range.values);
}

void Ranges::merge(const Ranges& other) {
  for (const Range& range : other.ranges_) {
    add(range);
  }
}

void Ranges::clear() {
  ranges_.clear();
  index_.clear();
}

std::vector<Range> by_scope(const std::vector<Range>& ranges) {
  std::vector<Range> result;
  std::vector<ExponentHistogram> worst;  // of each, that of its name
  std::map<std::tuple<ValueKind, std::string, std::string>, size_t> index;
  for (const Range& range : ranges) {
    const auto [found, is_new] =
        index.try_emplace({range.kind, range.scope, range.format}, result.size());
    if (is_new) {
      result.push_back(range);
      worst.push_back(range.values);
      continue;
    }
    Range& known = result[found->second];
    if (is_worse(range.values, worst[found->second])) {
      worst[found->second] = range.values;
      known.name = range.name;
    }
    known.values.merge(range.values);
  }
  return result;
}

double share(const Range& range, int64_t num) {
  const ExponentHistogram& values = range.values;
  const int64_t of = values.count - values.num_nonfinite() - values.zeros;
  return of == 0 ? 0 : static_cast<double>(num) / static_cast<double>(of);
}

Verdict judge(const Range& range, Format format) {
  const numerics::NarrowCounts& counts = range.values.in(format);
  if (range.values.num_nonfinite() > 0) {
    return Verdict::not_finite;
  }
  if (counts.overflow > 0) {
    return Verdict::overflow;
  }
  if (numerics::headroom_bits(range.values, format) < kNearBits) {
    return Verdict::near_overflow;
  }
  return share(range, counts.zero) >= kFlushedShare ? Verdict::underflow : Verdict::fits;
}

std::string advice(const Range& range, Format format) {
  const double headroom = numerics::headroom_bits(range.values, format);
  const bool is_gradient = range.kind == ValueKind::gradient;
  switch (judge(range, format)) {
    case Verdict::not_finite:
      return "find its first operation, and keep that in fp32";
    case Verdict::overflow:
      return is_gradient ? concat("lower the loss scale by 2^", std::ceil(1 - headroom))
                         : elsewhere(range, format);
    case Verdict::near_overflow:
      return is_gradient ? "no larger loss scale"
                         : concat("watch it; before it overflows: ", elsewhere(range, format));
    case Verdict::underflow: {
      if (range.kind == ValueKind::update) {
        return "FP32 masters (the default)";
      }
      const double room = std::floor(headroom) - 1;  // a bit of it stays
      return is_gradient && room >= 1 ? concat("a loss scale of 2^", room, " times this one")
             : is_gradient            ? elsewhere(range, format)
                                      : "harmless where large values beside them decide";
    }
    case Verdict::fits:
      return "";
  }
  MANTISSA_ASSERT(false);
}

std::vector<Range> worst_first(std::vector<Range> ranges, Format format) {
  std::stable_sort(ranges.begin(), ranges.end(), [&](const Range& a, const Range& b) {
    const Verdict of_a = judge(a, format);
    const Verdict of_b = judge(b, format);
    return of_a != of_b ? of_a < of_b
                        : numerics::headroom_bits(a.values, format) <
                              numerics::headroom_bits(b.values, format);
  });
  return ranges;
}

}  // namespace mantissa::monitor
