#include "mantissa/genome/contig_name.h"

#include <string>

namespace mantissa::genome {

FoundContig find_contig(const Genome& genome, std::string_view name) {
  if (const auto contig = genome.find(name)) {
    return {contig, false};
  }
  constexpr std::string_view kPrefix = "chr";
  const auto contig = name.starts_with(kPrefix) ? genome.find(name.substr(kPrefix.size()))
                                                : genome.find(std::string(kPrefix).append(name));
  return {contig, contig.has_value()};
}

}  // namespace mantissa::genome
