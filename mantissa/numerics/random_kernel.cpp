#include <algorithm>

#include "mantissa/base/random.h"
#include "mantissa/numerics/convert_kernels.h"

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/numerics/random_kernel.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mantissa::numerics::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
// One lane cannot hold a product of 64 bits, so this is base/random.h.
void random_words(uint64_t seed, uint64_t stream, uint64_t block, uint32_t* words, size_t size) {
  for (size_t i = 0; i < size; i += 4, ++block) {
    const auto four =
        philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                    static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                   {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    std::copy(four.begin(), four.end(), words + i);
  }
}
#else
constexpr hn::ScalableTag<uint64_t> kPairs;
constexpr hn::Repartition<uint32_t, decltype(kPairs)> kWords;
using Pairs = hn::Vec<decltype(kPairs)>;

// The full products of the low halves.
HWY_INLINE Pairs multiply(Pairs a, Pairs b) {
  return hn::MulEven(hn::BitCast(kWords, a), hn::BitCast(kWords, b));
}

// Philox4x32-10 as in base/random.h, one block in each lane of 64 bits. Each of the four words is
// in the low half of its vector; the high halves are not read before the end.
void random_words(uint64_t seed, uint64_t stream, uint64_t block, uint32_t* words, size_t size) {
  const Pairs multiplier0 = hn::Set(kPairs, 0xD2511F53);
  const Pairs multiplier1 = hn::Set(kPairs, 0xCD9E8D57);
  const Pairs low_half = hn::Set(kPairs, 0xFFFFFFFF);
  const size_t lanes = hn::Lanes(kPairs);
  for (size_t i = 0; i < size; i += 4 * lanes, block += lanes) {
    Pairs word0 = hn::Add(hn::Set(kPairs, block), hn::Iota(kPairs, 0));
    Pairs word1 = hn::ShiftRight<32>(word0);
    Pairs word2 = hn::Set(kPairs, stream);
    Pairs word3 = hn::Set(kPairs, stream >> 32);
    auto key0 = static_cast<uint32_t>(seed);
    auto key1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const Pairs product0 = multiply(word0, multiplier0);
      const Pairs product1 = multiply(word2, multiplier1);
      word0 = hn::Xor(hn::ShiftRight<32>(product1), hn::Xor(word1, hn::Set(kPairs, key0)));
      word1 = product1;
      word2 = hn::Xor(hn::ShiftRight<32>(product0), hn::Xor(word3, hn::Set(kPairs, key1)));
      word3 = product0;
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
    const Pairs words01 = hn::Or(hn::And(word0, low_half), hn::ShiftLeft<32>(word1));
    const Pairs words23 = hn::Or(hn::And(word2, low_half), hn::ShiftLeft<32>(word3));
    auto* out = reinterpret_cast<uint64_t*>(words + i);
    hn::StoreInterleaved2(words01, words23, kPairs, out);
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::numerics::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::numerics::kernels {

HWY_EXPORT(random_words);

void random_words(uint64_t seed, uint64_t stream, uint64_t block, uint32_t* words, size_t size) {
  HWY_DYNAMIC_DISPATCH(random_words)(seed, stream, block, words, size);
}

}  // namespace mantissa::numerics::kernels
#endif
