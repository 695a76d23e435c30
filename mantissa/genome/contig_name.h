#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "mantissa/base/api.h"
#include "mantissa/genome/genome.h"

namespace mantissa::genome {

struct FoundContig {
  std::optional<uint32_t> contig;
  bool renamed = false;
};

/// The contig of that name or, when there is none, of that name with "chr" put before or taken
/// off: UCSC and Ensembl differ in it.
MANTISSA_API FoundContig find_contig(const Genome& genome, std::string_view name);

}  // namespace mantissa::genome
