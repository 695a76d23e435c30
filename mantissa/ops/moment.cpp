#include "mantissa/ops/moment.h"

#include <algorithm>
#include <span>

#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/numerics/rounding.h"
#include "mantissa/ops/moment_storage.h"

namespace mantissa::ops {
namespace {

int64_t blocks_of(int64_t elements) {
  return (elements + kQuantizationBlock - 1) / kQuantizationBlock;
}

}  // namespace

std::string_view to_string(MomentFormat format) {
  switch (format) {
    case MomentFormat::fp32:
      return "fp32";
    case MomentFormat::bf16:
      return "bf16";
    case MomentFormat::blockwise8:
      return "blockwise8";
  }
  MANTISSA_ASSERT(false);
}

Moment zero_moment(const at::Tensor& pattern, MomentFormat format, CodeMap map) {
  const at::Tensor weight = pattern.detach();
  switch (format) {
    case MomentFormat::fp32:
      return at::zeros_like(weight, at::kFloat);
    case MomentFormat::bf16:
      return at::zeros_like(weight, at::kBFloat16);
    case MomentFormat::blockwise8:
      return {at::full_like(weight, zero_code(map), at::kByte),
              at::zeros({blocks_of(weight.numel())}, at::kFloat)};
  }
  MANTISSA_ASSERT(false);
}

void check_moment(const Moment& moment, const at::Tensor& pattern, const Place& where) {
  const at::Tensor& values = moment.values;
  const bool fits = values.defined() && values.device() == pattern.device() &&
                    values.sizes() == pattern.sizes() && values.strides() == pattern.strides() &&
                    (values.scalar_type() == at::kFloat || values.scalar_type() == at::kBFloat16 ||
                     values.scalar_type() == at::kByte);
  MANTISSA_CHECK(fits, InvalidArgument, where,
                 " does not fit the weight; make it with zero_moment(weight, ...)");
  const bool has_codes = values.scalar_type() == at::kByte;
  const at::Tensor& scales = moment.scales;
  MANTISSA_CHECK(scales.defined() == has_codes, InvalidArgument, where, " is ",
                 values.scalar_type(), scales.defined() ? " with" : " without",
                 " scales; pass scales exactly when it is Byte");
  MANTISSA_CHECK(
      !has_codes || (scales.device() == values.device() && scales.scalar_type() == at::kFloat &&
                     scales.dim() == 1 && scales.is_contiguous() &&
                     scales.numel() == blocks_of(values.numel())),
      InvalidArgument, where, " has ", scales.numel(), " scales of ", scales.scalar_type(),
      ", not ", blocks_of(values.numel()), " of Float; make it with zero_moment(weight, ...)");
}

cpu::MomentView moment_view(const Moment& moment, CodeMap map) {
  cpu::MomentView view = {};
  if (!moment.values.defined()) {
    return view;
  }
  view.values = moment.values.mutable_data_ptr();
  view.dtype = moment.values.scalar_type();
  view.scales = moment.scales.defined() ? moment.scales.mutable_data_ptr<float>() : nullptr;
  view.map = map;
  view.seed = moment.seed;
  view.stream = moment.stream;
  return view;
}

std::vector<float> moments_reference(const Moment& moment, CodeMap map) {
  const auto size = static_cast<size_t>(moment.values.numel());
  std::vector<float> values(size);
  if (moment.values.scalar_type() == at::kFloat) {
    std::copy_n(moment.values.const_data_ptr<float>(), size, values.begin());
  } else if (moment.values.scalar_type() == at::kBFloat16) {
    const auto* patterns = static_cast<const uint16_t*>(moment.values.const_data_ptr());
    for (size_t i = 0; i < size; ++i) {
      values[i] = numerics::decode(numerics::Format::bf16, patterns[i]);
    }
  } else {
    const uint8_t* codes = moment.values.const_data_ptr<uint8_t>();
    const float* scales = moment.scales.const_data_ptr<float>();
    for (size_t i = 0; i < size; ++i) {
      values[i] = numbers_of(map)[codes[i]] * scales[i / kQuantizationBlock];
    }
  }
  return values;
}

void store_moments_reference(const Moment& moment, CodeMap map, const std::vector<float>& values) {
  if (moment.values.scalar_type() == at::kFloat) {
    std::copy(values.begin(), values.end(), moment.values.mutable_data_ptr<float>());
  } else if (moment.values.scalar_type() == at::kBFloat16) {
    auto* patterns = static_cast<uint16_t*>(moment.values.mutable_data_ptr());
    Random random(moment.seed, moment.stream);
    for (size_t i = 0; i < values.size(); ++i) {
      patterns[i] = static_cast<uint16_t>(numerics::encode(
          numerics::Format::bf16, values[i], numerics::Rounding::stochastic, random.next_u32()));
    }
  } else {
    quantize_reference(map, values,
                       std::span(moment.values.mutable_data_ptr<uint8_t>(), values.size()),
                       std::span(moment.scales.mutable_data_ptr<float>(),
                                 static_cast<size_t>(moment.scales.numel())));
  }
}

}  // namespace mantissa::ops
