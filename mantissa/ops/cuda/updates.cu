// One pass over gradients, weights and moments of many parameters, skipped whole by found_inf.
#include "mantissa/ops/cuda/passes.h"

#include "mantissa/ops/cuda/grid.h"

namespace mantissa::ops::cuda {
namespace {

static_assert(sizeof(UpdateList) + sizeof(AdamwFactors) + 2 * sizeof(double) <= 4096,
              "the arguments of a kernel");
static_assert(sizeof(GradientList) <= 4096, "the arguments of a kernel");
static_assert(sizeof(StepCounts) <= 4096, "the arguments of a kernel");

/// Four elements of a tensor.
struct Place {
  int64_t begin;
  int count;  // of them that there are
  bool is_aligned;
};

__device__ FourFloats read_weights(const UpdateTensor& tensor, const Place& at) {
  if (tensor.kept == Kept::master) {
    return read_floats(tensor.master, at.begin, at.count, at.is_aligned);
  }
  const FourPatterns models =
      read_patterns(static_cast<const uint16_t*>(tensor.model), at.begin, at.count, at.is_aligned);
  FourPatterns rests = {};
  if (tensor.rest != nullptr) {
    rests =
        read_patterns(static_cast<const uint16_t*>(tensor.rest), at.begin, at.count, at.is_aligned);
  }
  FourFloats weights;
  for (int i = 0; i < kVector; ++i) {
    if (tensor.kept == Kept::split) {
      weights.values[i] = join(models.values[i], static_cast<int16_t>(rests.values[i]));
    } else {
      weights.values[i] = decode(tensor.model_storage, models.values[i]);
      if (tensor.kept == Kept::compensated) {
        weights.values[i] += decode(tensor.model_storage, rests.values[i]);
      }
    }
  }
  return weights;
}

// Returns how many updates were lost to rounding.
__device__ int write_weights(const UpdateTensor& tensor, const Place& at, const FourFloats& weights,
                             uint64_t stream_offset) {
  if (tensor.kept == Kept::master) {
    write_floats(weights, tensor.master, at.begin, at.count, at.is_aligned);
    if (tensor.model == nullptr) {
      return 0;
    }
  }
  auto* const models = static_cast<uint16_t*>(tensor.model);
  FourPatterns patterns;
  FourPatterns rests = {};
  int lost = 0;
  const bool stochastic = tensor.kept == Kept::rounded_stochastically;
  RandomWords random = {};
  if (stochastic) {
    random = random_words(tensor.seed, tensor.stream + stream_offset,
                          static_cast<uint64_t>(at.begin) / kVector);
  }
  FourPatterns before = {};
  if (tensor.lost != nullptr) {
    before = read_patterns(models, at.begin, at.count, at.is_aligned);
  }
  for (int i = 0; i < kVector; ++i) {
    const float weight = weights.values[i];
    if (tensor.kept == Kept::split) {
      const SplitHalves halves = split(weight);
      patterns.values[i] = halves.model;
      rests.values[i] = static_cast<uint16_t>(halves.rest);
      continue;
    }
    patterns.values[i] = encode(tensor.model_storage, weight, stochastic, random.words[i]);
    if (tensor.kept == Kept::compensated) {
      rests.values[i] =
          encode(tensor.model_storage, weight - decode(tensor.model_storage, patterns.values[i]));
    } else if (tensor.lost != nullptr && i < at.count) {
      const float old = decode(tensor.model_storage, before.values[i]);
      lost += old == decode(tensor.model_storage, patterns.values[i]) && weight != old ? 1 : 0;
    }
  }
  write_patterns(patterns, models, at.begin, at.count, at.is_aligned);
  if (tensor.rest != nullptr) {
    write_patterns(rests, static_cast<uint16_t*>(tensor.rest), at.begin, at.count, at.is_aligned);
  }
  return lost;
}

__device__ void write_moments(const MomentArray& moment, const Place& at, const FourFloats& numbers,
                              uint64_t stream_offset) {
  if (moment.storage == Storage::fp32) {
    write_floats(numbers, static_cast<float*>(moment.data), at.begin, at.count, at.is_aligned);
    return;
  }
  const RandomWords random = random_words(moment.seed, moment.stream + stream_offset,
                                          static_cast<uint64_t>(at.begin) / kVector);
  FourPatterns patterns;
  for (int i = 0; i < kVector; ++i) {
    patterns.values[i] = encode(moment.storage, numbers.values[i], true, random.words[i]);
  }
  write_patterns(patterns, static_cast<uint16_t*>(moment.data), at.begin, at.count, at.is_aligned);
}

struct Adamw {
  AdamwFactors factors;
  double log_beta1;
  double log_beta2;

  __device__ void set_constants(const UpdateTensor& tensor, double rate,
                                StepConstants& constants) const {
    const int64_t step = *tensor.step + 1;
    constants.step_size = static_cast<float>(rate / bias_correction(log_beta1, step));
    constants.inverse_sqrt_correction2 =
        static_cast<float>(1 / sqrt(bias_correction(log_beta2, step)));
  }

  __device__ void update(float gradient, float& weight, float& first, float& second,
                         const StepConstants& constants) const {
    adamw(gradient, weight, first, second, constants, factors);
  }
};

struct Sgd {
  SgdFactors factors;
  bool has_momentum;

  __device__ void set_constants(const UpdateTensor&, double rate, StepConstants& constants) const {
    constants.step_size = static_cast<float>(rate);
    constants.inverse_sqrt_correction2 = 1;
  }

  __device__ void update(float gradient, float& weight, float& first, float&,
                         const StepConstants& constants) const {
    sgd(gradient, weight, has_momentum ? &first : nullptr, constants, factors);
  }
};

__device__ double rate_of(const UpdateTensor& tensor) {
  if (tensor.lr_factor == nullptr) {
    return tensor.lr;
  }
  return tensor.lr * (tensor.lr_factor_is_double
                          ? *static_cast<const double*>(tensor.lr_factor)
                          : static_cast<double>(*static_cast<const float*>(tensor.lr_factor)));
}

template <typename Rule>
__global__ void update_pieces(const UpdateList list, const Rule rule) {
  __shared__ UpdateTensor tensor;
  __shared__ StepConstants constants;
  __shared__ int64_t begin;
  const UpdateUse& use = list.use;
  if (use.found_inf != nullptr && *use.found_inf != 0) {
    return;  // all threads of all blocks do
  }
  if (threadIdx.x == 0) {
    const auto piece = static_cast<int32_t>(blockIdx.x);
    const int index = tensor_of(list.first_piece, list.size, piece);
    tensor = list.tensors[index];
    begin = (piece - list.first_piece[index]) * kUpdatePiece;
    const double rate = rate_of(tensor);
    rule.set_constants(tensor, rate, constants);
    constants.gradient_factor = (use.scale == nullptr ? 1.0F : inverse_of(*use.scale)) *
                                (use.clip_factor == nullptr ? 1.0F : *use.clip_factor);
    constants.coupled_decay = use.decay_is_coupled ? static_cast<float>(tensor.weight_decay) : 0;
    constants.decoupled_decay =
        use.decay_is_coupled ? 0 : static_cast<float>(rate * tensor.weight_decay);
  }
  __syncthreads();
  const uint64_t stream_offset =
      use.stream_offset == nullptr ? 0 : static_cast<uint64_t>(*use.stream_offset);
  const int64_t end = begin + kUpdatePiece < tensor.count ? begin + kUpdatePiece : tensor.count;
  int lost = 0;
  for (int64_t i = begin + static_cast<int64_t>(threadIdx.x) * kVector; i < end;
       i += kThreads * kVector) {
    const Place at = {i, end - i < kVector ? static_cast<int>(end - i) : kVector,
                      tensor.is_aligned};
    const FourFloats gradients =
        read(tensor.gradient_storage, tensor.gradient, i, at.count, at.is_aligned);
    FourFloats weights = read_weights(tensor, at);
    FourFloats first = {};
    FourFloats second = {};
    if (tensor.first.data != nullptr) {
      first = read(tensor.first.storage, tensor.first.data, i, at.count, at.is_aligned);
    }
    if (tensor.second.data != nullptr) {
      second = read(tensor.second.storage, tensor.second.data, i, at.count, at.is_aligned);
    }
    for (int j = 0; j < kVector; ++j) {
      rule.update(gradients.values[j], weights.values[j], first.values[j], second.values[j],
                  constants);
    }
    lost += write_weights(tensor, at, weights, stream_offset);
    if (tensor.first.data != nullptr) {
      write_moments(tensor.first, at, first, stream_offset);
    }
    if (tensor.second.data != nullptr) {
      write_moments(tensor.second, at, second, stream_offset);
    }
  }
  if (lost != 0) {
    atomicAdd(tensor.lost, static_cast<unsigned long long>(lost));  // integers: in any order
  }
}

__global__ void count(const StepCounts counts) {
  if (counts.found_inf != nullptr && *counts.found_inf != 0) {
    return;
  }
  const auto i = static_cast<int>(threadIdx.x);
  if (i < counts.size) {
    ++*counts.steps[i];
  }
}

}  // namespace

int adamw_list(const UpdateList& list, const AdamwFactors& factors, double log_beta1,
               double log_beta2, void* stream) {
  const Adamw rule = {factors, log_beta1, log_beta2};
  return MANTISSA_LAUNCH(update_pieces<Adamw>, static_cast<unsigned>(list.first_piece[list.size]),
                         kThreads, stream, list, rule);
}

int sgd_list(const UpdateList& list, const SgdFactors& factors, void* stream) {
  const Sgd rule = {factors, list.tensors[0].first.data != nullptr};
  return MANTISSA_LAUNCH(update_pieces<Sgd>, static_cast<unsigned>(list.first_piece[list.size]),
                         kThreads, stream, list, rule);
}

int count_steps(const StepCounts& counts, void* stream) {
  static_assert(StepCounts::kMost == kThreads, "one thread a count");
  return MANTISSA_LAUNCH(count, 1, kThreads, stream, counts);
}

}  // namespace mantissa::ops::cuda
