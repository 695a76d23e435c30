#include "mantissa/genome/alphabet.h"

#include <algorithm>

namespace mantissa::genome {

void reverse_complement_(std::span<uint8_t> letters) {
  std::reverse(letters.begin(), letters.end());
  for (uint8_t& letter : letters) {
    letter = complement(letter);
  }
}

}  // namespace mantissa::genome
