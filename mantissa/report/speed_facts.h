#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/bootstrap.h"
#include "mantissa/record/event.h"
#include "mantissa/report/quantity.h"

namespace mantissa::report {

/// What a machine can do, measured; NaN where it was not.
struct Rates {
  double fp32_flops = kNotKnown;    // a second, of products
  double narrow_flops = kNotKnown;  // likewise, in the 16-bit format
  double copy_bytes = kNotKnown;    // a second
};

/// A reason for which operations have no speed of 16-bit units, and what they take.
struct ReasonShare {
  std::string reason;     // as in record::OperationRow
  std::string detail;     // of the operation that takes most
  std::string operation;  // that one, with its scope
  double share = 0;       // of the step
};

/// Where a step of a 16-bit run goes, in shares of its time without replays of skipped steps. Small
/// calls may be products too, and what is unsupported; the others do not overlap.
struct SpeedFacts {
  std::string precision;  // of the 16-bit run
  double step_s = kNotKnown;
  double data = 0;         // wait for data
  double casts = 0;        // of the forward and backward pass
  double optimizer = 0;    // with its small operations
  double products = 0;     // of the passes: products, convolutions, attention; what 16 bits are for
  double in_16_bits = 0;   // of `products`: got 16 bits
  double widened = 0;      // of `in_16_bits`: without units for them
  double unsupported = 0;  // of the passes: what policy, kernel or shape keep from 16-bit units
  double overhead = 0;  // of the passes: calls shorter than kSmallCall_s, and what is between calls
  double memory_bound = kNotKnown;   // of `products` in 16 bits: their bytes take longer than their
                                     // arithmetic
  std::vector<ReasonShare> reasons;  // those with the largest share first
  double product_gain = kNotKnown;   // products alone: times as fast as in FP32, measured
  double predicted = kNotKnown;      // times as fast as FP32, casts left aside
  std::optional<Estimate> measured;  // likewise, casts and all
};

/// A call that is shorter is mostly the call itself: dispatch, autograd, memory.
inline constexpr double kSmallCall_s = 10e-6;

/// Out of the steps that were timed by operation in one run, the mean of them. Nothing without any.
MANTISSA_API std::optional<SpeedFacts> speed_facts(const std::vector<record::TimeSplit>& splits,
                                                   const std::string& precision,
                                                   const Rates& rates = {});

/// An operation in FP32 beside itself in 16 bits, and what 16 bits could make of it.
struct OperationGain {
  record::OperationRow fp32;    // all formats in one
  record::OperationRow narrow;  // likewise; without calls when the 16-bit run has none
  double predicted = 1;         // times as fast
  double measured = kNotKnown;
};

/// By phase, scope and operation, those that take most in FP32 first; casts and what the 16-bit run
/// alone has are left out. Predicted is, by the roofline (Williams et al., 2009):
///   - of products the longer of arithmetic and bytes in FP32, over that in 16 bits with half of
///     the bytes; 1 where rates are not known;
///   - of the others their bytes in FP32 over their bytes in 16 bits, unless their calls are small.
MANTISSA_API std::vector<OperationGain> operation_gains(const record::TimeSplit& fp32,
                                                        const record::TimeSplit& narrow,
                                                        const Rates& rates);

/// Of all products that both runs have; not known without any.
MANTISSA_API double product_gain(const std::vector<OperationGain>& gains);

/// Of the whole step: what is in no operation, waits included, stays as it is.
MANTISSA_API double predicted_gain(const record::TimeSplit& fp32,
                                   const std::vector<OperationGain>& gains);

}  // namespace mantissa::report
