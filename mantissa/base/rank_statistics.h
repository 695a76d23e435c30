#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/base/bootstrap.h"

namespace mantissa {

/// The rank of each value, from 1; equal values share the mean of their ranks. No value is NaN.
MANTISSA_API std::vector<double> mid_ranks(std::span<const double> values);

/// Spearman's rank correlation: Pearson's of the mid-ranks. NaN for fewer than two pairs, and when
/// one side has no two different values.
MANTISSA_API double spearman(std::span<const double> a, std::span<const double> b);

/// The area under the receiver operating characteristic: the share of pairs of a positive and a
/// negative in which the positive has the greater value, a tie counted as half. With the 95 %
/// interval of DeLong, DeLong and Clarke-Pearson (Biometrics 44, 1988), computed from mid-ranks
/// (Sun and Xu, IEEE Signal Processing Letters 21, 2014) and cut to 0 and 1: value +- 1.96 standard
/// errors. It has no width when the two are separated entirely, which then says little. All three
/// are NaN without a value on one side, the interval alone with one value there.
MANTISSA_API Estimate auroc(std::span<const double> positive, std::span<const double> negative);

}  // namespace mantissa
