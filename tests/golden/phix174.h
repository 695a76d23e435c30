#pragma once

#include <string>

#include "mantissa/base/file.h"
#include "reference_model.h"

namespace mantissa::golden {

/// The bases of the bundled genome that the curves are made of.
inline std::string phix174() {
  return bases_of_fasta(read_file(MANTISSA_SOURCE_DIR "/data/phix174.fa"));
}

}  // namespace mantissa::golden
