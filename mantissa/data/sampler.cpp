#include "mantissa/data/sampler.h"

#include <limits>
#include <string>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/data/permutation.h"

namespace mantissa::data {
namespace {

// Keeps these draws apart from others of the same seed ("STRN").
constexpr uint64_t kStrandStream = uint64_t{0x5354524e} << 32;

std::string to_string(Strands strands) { return strands == Strands::both ? "both" : "forward"; }

}  // namespace

Sampler::Sampler(uint64_t num_windows, const SamplerOptions& options)
    : num_windows_(num_windows), options_(options) {
  MANTISSA_CHECK(num_windows > 0, InvalidArgument,
                 "sampler: 0 windows; give a sequence that holds at least one");
}

Sample Sampler::at(uint64_t number) const {
  const uint64_t epoch = number / num_windows_;
  const Permutation order(num_windows_, options_.seed, epoch);
  Sample sample{number, order(number % num_windows_), genome::Strand::forward};
  if (options_.strands == Strands::both) {
    Random random(options_.seed, kStrandStream, number);
    sample.strand =
        random.next_u32() >> 31 == 0 ? genome::Strand::forward : genome::Strand::reverse;
  }
  return sample;
}

Sample Sampler::next() { return at(next_++); }

tensor::StateDict Sampler::state_dict() const {
  tensor::StateDict state;
  // The state holds signed integers; the bits of the seed are kept.
  state.set("seed", static_cast<int64_t>(options_.seed));
  state.set("epoch", static_cast<int64_t>(epoch()));
  state.set("position", static_cast<int64_t>(position()));
  state.set("num_windows", static_cast<int64_t>(num_windows_));
  state.set("strands", to_string(options_.strands));
  return state;
}

void Sampler::load_state_dict(const tensor::StateDict& state) {
  const auto num_windows = static_cast<uint64_t>(state.integer("num_windows"));
  MANTISSA_CHECK(num_windows == num_windows_, Corruption, "sampler: the state is of ", num_windows,
                 " windows, the data has ", num_windows_,
                 "; resume with the same data, split, context and stride");
  const std::string& strands = state.text("strands");
  MANTISSA_CHECK(strands == to_string(options_.strands), Corruption,
                 "sampler: the state is of strands \"", strands, "\", the setting is \"",
                 to_string(options_.strands), "\"; resume with the setting that was saved");
  const int64_t epoch = state.integer("epoch");
  const int64_t position = state.integer("position");
  MANTISSA_CHECK(
      epoch >= 0 && position >= 0 && static_cast<uint64_t>(position) < num_windows_ &&
          static_cast<uint64_t>(epoch) < std::numeric_limits<int64_t>::max() / num_windows_,
      Corruption, "sampler: the state is at epoch ", epoch, ", position ", position, " of ",
      num_windows_, "; the checkpoint is damaged");
  options_.seed = static_cast<uint64_t>(state.integer("seed"));
  next_ = static_cast<uint64_t>(epoch) * num_windows_ + static_cast<uint64_t>(position);
}

}  // namespace mantissa::data
