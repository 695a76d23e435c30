#include "mantissa/genome/allele_windows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/genome/alphabet.h"

namespace mantissa::genome {
namespace {

std::string reverse_complement(std::string letters) {
  reverse_complement_({reinterpret_cast<uint8_t*>(letters.data()), letters.size()});
  return letters;
}

// The letters of [begin, end) of a contig as read along a strand, positions too.
std::string read(const Genome& genome, uint32_t contig, Strand strand, uint64_t begin,
                 uint64_t end) {
  const uint64_t length = genome.contigs()[contig].length;
  const Interval interval = strand == Strand::forward
                                ? Interval{contig, begin, end}
                                : Interval{contig, length - end, length - begin};
  std::string letters(interval.size(), '\0');
  genome.fetch(interval, {reinterpret_cast<uint8_t*>(letters.data()), letters.size()});
  return strand == Strand::forward ? letters : reverse_complement(std::move(letters));
}

// The same change as read along the other strand, again as far left as it goes.
Allele reversed(const Genome& genome, Allele allele) {
  // Standing furthest right, which is furthest left on the other strand, a base that slid out on
  // the left has come in on the right.
  for (std::string* bases : {&allele.reference, &allele.alternative}) {
    if (!bases->empty()) {
      const auto turn = static_cast<std::ptrdiff_t>(allele.slide % bases->size());
      std::rotate(bases->begin(), bases->begin() + turn, bases->end());
    }
    *bases = reverse_complement(std::move(*bases));
  }
  const uint64_t end = allele.begin + allele.slide + allele.reference.size();
  allele.begin = genome.contigs()[allele.contig].length - end;
  return allele;
}

AlleleWindow window_of(const Genome& genome, const Allele& allele, Strand strand, uint64_t length) {
  const uint64_t contig_length = genome.contigs()[allele.contig].length;
  const uint64_t reference_end = allele.begin + allele.reference.size();
  const uint64_t alternative_end = allele.begin + allele.alternative.size();
  const uint64_t with_change = contig_length - allele.reference.size() + allele.alternative.size();
  const uint64_t middle = (allele.begin + reference_end + allele.slide) / 2;
  const uint64_t last_begin = std::min(contig_length, with_change) - length;
  const uint64_t begin = std::min(middle - std::min(middle, length / 2), last_begin);

  AlleleWindow window;
  window.begin = allele.begin - begin;
  window.reference_span = allele.reference.size() + allele.slide;
  window.alternative_span = allele.alternative.size() + allele.slide;
  window.reference = read(genome, allele.contig, strand, begin, begin + length);
  // Before the change, the change, after it: of what lies within the window.
  const uint64_t end = begin + length;
  window.alternative = read(genome, allele.contig, strand, begin, std::min(allele.begin, end));
  window.alternative += allele.alternative;
  if (end > alternative_end) {
    window.alternative +=
        read(genome, allele.contig, strand, reference_end, reference_end + (end - alternative_end));
  }
  window.alternative.resize(length);
  return window;
}

}  // namespace

AlleleWindows allele_windows(const Genome& genome, const Allele& allele, uint64_t length) {
  MANTISSA_CHECK(length >= 2, InvalidArgument, "allele windows: length ", length,
                 "; valid: 2 or more bases");
  const uint64_t contig_length = genome.contigs()[allele.contig].length;
  const uint64_t with_change = contig_length - allele.reference.size() + allele.alternative.size();
  length = std::min({length, contig_length, with_change});
  AlleleWindows result;
  if (length < 2) {
    result.unscored = Unscored::contig_end;
    return result;
  }
  if (std::max(allele.reference.size(), allele.alternative.size()) + allele.slide > length / 2) {
    result.unscored = Unscored::too_long;
    return result;
  }
  result.strands[0] = window_of(genome, allele, Strand::forward, length);
  result.strands[1] = window_of(genome, reversed(genome, allele), Strand::reverse, length);
  for (const AlleleWindow& window : result.strands) {
    if (window.reference == window.alternative) {
      return {Unscored::contig_end, {}};
    }
  }
  return result;
}

double log_ratio(std::span<const double> reference, std::span<const double> alternative) {
  const auto scored = [](std::span<const double> values) {
    std::vector<double> kept;
    std::ranges::copy_if(values, std::back_inserter(kept), [](double v) { return !std::isnan(v); });
    return kept;
  };
  const std::vector<double> of_reference = scored(reference);
  const std::vector<double> of_alternative = scored(alternative);
  double sum = 0;
  for (size_t i = 0; i < std::min(of_reference.size(), of_alternative.size()); ++i) {
    sum += of_alternative[i] - of_reference[i];
  }
  return sum;
}

}  // namespace mantissa::genome
