#include "mantissa/genome/interval.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "mantissa/base/error.h"
#include "mantissa/genome/genome.h"

namespace mantissa::genome {
namespace {

// A position of `region`, from 1; `missing` where the text is empty.
uint64_t parse_position(std::string_view text, uint64_t missing, std::string_view region) {
  if (text.empty()) {
    return missing;
  }
  std::string digits;
  for (const char c : text) {
    if (c != ',') {
      digits += c;
    }
  }
  uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  MANTISSA_CHECK(error == std::errc() && stop == end, InvalidArgument, "region \"", region,
                 "\": \"", text, "\" is no position; write name:first-last, counted from 1");
  return value;
}

}  // namespace

Interval parse_region(const Genome& genome, std::string_view text) {
  const std::optional<uint32_t> whole = genome.find(text);
  const size_t colon = text.rfind(':');
  if (whole || colon == std::string_view::npos) {
    const uint32_t contig = whole ? *whole : genome.index_of(text);
    return {contig, 0, genome.contigs()[contig].length};
  }
  const uint32_t contig = genome.index_of(text.substr(0, colon));
  const uint64_t length = genome.contigs()[contig].length;
  const std::string_view range = text.substr(colon + 1);
  const size_t dash = range.find('-');
  const uint64_t first = parse_position(range.substr(0, dash), 1, text);
  const uint64_t last = dash == std::string_view::npos
                            ? length
                            : parse_position(range.substr(dash + 1), length, text);
  MANTISSA_CHECK(1 <= first && first <= last && last <= length, InvalidArgument, "region \"", text,
                 "\": ", first, " to ", last, " is not within ", genome.contigs()[contig].name,
                 "; valid positions: 1 to ", length);
  return {contig, first - 1, last};
}

std::string to_string(const Genome& genome, const Interval& interval) {
  return concat(genome.contigs()[interval.contig].name, ":", interval.begin + 1, "-", interval.end);
}

std::vector<Interval> merge(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& interval) { return interval.size() == 0; });
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return std::tie(a.contig, a.begin) < std::tie(b.contig, b.begin);
  });
  std::vector<Interval> merged;
  for (const Interval& interval : intervals) {
    if (!merged.empty() && merged.back().contig == interval.contig &&
        interval.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, interval.end);
    } else {
      merged.push_back(interval);
    }
  }
  return merged;
}

}  // namespace mantissa::genome
