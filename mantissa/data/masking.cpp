#include "mantissa/data/masking.h"

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::data {
namespace {

// Keeps these draws apart from others of the same seed ("MASK").
constexpr uint64_t kMaskStream = uint64_t{0x4d41534b} << 32;

}  // namespace

void require_valid(const MaskingOptions& options) {
  // Written so that NaN fails.
  MANTISSA_CHECK(options.chosen > 0 && options.chosen <= 1, InvalidArgument, "masking: chosen ",
                 options.chosen, "; valid: more than 0, at most 1");
  MANTISSA_CHECK(options.masked >= 0 && options.replaced >= 0 &&
                     options.masked + options.replaced <= 1 + 1e-12,
                 InvalidArgument, "masking: masked ", options.masked, " and replaced ",
                 options.replaced, "; valid: neither below 0, together at most 1");
}

void mask_(std::span<int64_t> tokens, std::span<int64_t> targets, uint64_t number,
           const MaskingOptions& options) {
  MANTISSA_CHECK(tokens.size() == targets.size(), InvalidArgument, "mask_: ", tokens.size(),
                 " tokens and ", targets.size(), " targets; give as many of both");
  Random random(options.seed, kMaskStream + number);
  for (size_t i = 0; i < tokens.size(); ++i) {
    targets[i] = kIgnore;
    if (!is_base(tokens[i]) || random.uniform() >= options.chosen) {
      continue;
    }
    targets[i] = tokens[i];
    const double what = random.uniform();
    if (what < options.masked) {
      tokens[i] = kMask;
    } else if (what < options.masked + options.replaced) {
      tokens[i] = kA + static_cast<int64_t>(random.below(4));
    }
  }
}

}  // namespace mantissa::data
