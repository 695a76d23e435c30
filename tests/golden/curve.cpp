#include "curve.h"

#include <bit>
#include <charconv>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "reference_model.h"

namespace mantissa::golden {
namespace {

static_assert(std::endian::native == std::endian::little, "the hash is of little-endian bytes");

std::string text_of(float value, std::chars_format format) {
  std::array<char, 64> buffer;
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format);
  MANTISSA_ASSERT(error == std::errc());
  return {buffer.data(), end};
}

uint64_t hash_of(const Weights& weights) {
  Xxh3 hash;
  for (const Matrix* matrix : {&weights.hidden, &weights.output}) {
    hash.update(matrix->values.data(), matrix->values.size() * sizeof(float));
  }
  return hash.value();
}

}  // namespace

std::string curve_text(numerics::Format compute, std::string_view bases) {
  std::string text = concat("# The reference training of tests/golden in ", to_string(compute),
                            "; written by tools/renew_golden.\n",
                            "# step, loss (hexadecimal, decimal), scale, outcome\n");
  ReferenceTraining training(compute, bases);
  Step step;
  for (int64_t i = 0; i < kCurveSteps; ++i) {
    step = training.step();
    text += concat(step.number, " 0x", text_of(step.loss, std::chars_format::hex), " ",
                   text_of(step.loss, std::chars_format::general), " ",
                   text_of(step.scale, std::chars_format::fixed), " ",
                   step.applied ? "applied" : "skipped", "\n");
  }
  return text + concat("weights ", hex(hash_of(step.after)), "\n");
}

}  // namespace mantissa::golden
