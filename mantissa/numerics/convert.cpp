#include "mantissa/numerics/convert.h"

#include <algorithm>
#include <array>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/numerics/convert_kernels.h"

namespace mantissa::numerics {
namespace {

void check_sizes(std::string_view where, size_t values, size_t others) {
  MANTISSA_CHECK(values == others, InvalidArgument, where, ": spans of ", values, " and ", others,
                 " elements; they must have one length");
}

void check_storage(std::string_view where, Format format, size_t bytes) {
  MANTISSA_CHECK(info(format).storage_bits == static_cast<int>(bytes) * 8, InvalidArgument, where,
                 ": ", to_string(format), " is stored in ", info(format).storage_bits,
                 " bits but the patterns have ", bytes * 8,
                 "; valid: bf16 fp16 with 16, fp8_e4m3 fp8_e5m2 with 8, others by round_to");
}

// Calls `kernel(job, first)` for pieces that the random words of stochastic rounding are ready
// for, and once for all elements in the other roundings.
template <typename Kernel>
void for_pieces(std::string_view where, Format format, std::span<const float> values,
                const ConvertOptions& options, const Kernel& kernel) {
  kernels::Job job = {format,        options.rounding, options.overflow,
                      values.data(), nullptr,          values.size()};
  if (options.rounding != Rounding::stochastic) {
    kernel(job, 0);
    return;
  }
  MANTISSA_CHECK(options.offset <= std::numeric_limits<uint64_t>::max() - values.size(),
                 InvalidArgument, where, ": offset ", options.offset, " with ", values.size(),
                 " elements passes the end of the random stream; its length is 2^64");
  // Small enough to stay in the first-level cache between being written and read.
  constexpr size_t kPiece = 2048;
  alignas(64) std::array<uint32_t, kPiece + 3 + kernels::kMaxRandomGroup> words;
  for (size_t first = 0; first < values.size(); first += kPiece) {
    const uint64_t position = options.offset + first;
    const size_t skip = position % 4;
    job.values = values.data() + first;
    job.size = std::min(kPiece, values.size() - first);
    kernels::random_words(options.seed, options.stream, position / 4, words.data(),
                          job.size + skip);
    job.random = words.data() + skip;
    kernel(job, first);
  }
}

template <typename Pattern>
void encode_span(Format format, std::span<const float> values, std::span<Pattern> patterns,
                 const ConvertOptions& options) {
  check_storage("encode", format, sizeof(Pattern));
  check_sizes("encode", values.size(), patterns.size());
  for_pieces("encode", format, values, options, [&](const kernels::Job& job, size_t first) {
    kernels::encode(job, patterns.data() + first);
  });
}

template <typename Pattern>
void decode_span(Format format, std::span<const Pattern> patterns, std::span<float> values) {
  check_storage("decode", format, sizeof(Pattern));
  check_sizes("decode", patterns.size(), values.size());
  kernels::decode(format, patterns.data(), values.data(), values.size());
}

}  // namespace

void encode(Format format, std::span<const float> values, std::span<uint16_t> patterns,
            const ConvertOptions& options) {
  encode_span(format, values, patterns, options);
}

void encode(Format format, std::span<const float> values, std::span<uint8_t> patterns,
            const ConvertOptions& options) {
  encode_span(format, values, patterns, options);
}

void decode(Format format, std::span<const uint16_t> patterns, std::span<float> values) {
  decode_span(format, patterns, values);
}

void decode(Format format, std::span<const uint8_t> patterns, std::span<float> values) {
  decode_span(format, patterns, values);
}

void round_to(Format format, std::span<const float> values, std::span<float> rounded,
              const ConvertOptions& options) {
  check_sizes("round_to", values.size(), rounded.size());
  for_pieces("round_to", format, values, options, [&](const kernels::Job& job, size_t first) {
    kernels::round_to(job, rounded.data() + first);
  });
}

std::string_view simd_target() { return kernels::target_name(); }

}  // namespace mantissa::numerics
