#include "mantissa/genome/split.h"

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/glob.h"

namespace mantissa::genome {
namespace {

std::vector<Interval> find_entry(const Genome& genome, const std::string& entry) {
  const bool is_pattern = entry.find_first_of("*?") != std::string::npos;
  if (genome.find(entry) || !is_pattern) {
    return {parse_region(genome, entry)};
  }
  std::vector<Interval> found;
  for (uint32_t contig = 0; contig < genome.contigs().size(); ++contig) {
    if (glob_match(entry, genome.contigs()[contig].name)) {
      found.push_back({contig, 0, genome.contigs()[contig].length});
    }
  }
  MANTISSA_CHECK(!found.empty(), InvalidArgument, "split: no contig matches \"", entry,
                 "\"; the first of ", genome.contigs().size(), " is ",
                 genome.contigs().front().name);
  return found;
}

std::vector<Interval> find_all(const Genome& genome, const std::vector<std::string>& entries,
                               const char* part) {
  std::vector<Interval> all;
  for (const std::string& entry : entries) {
    const std::vector<Interval> found = find_entry(genome, entry);
    all.insert(all.end(), found.begin(), found.end());
  }
  std::vector<Interval> merged = merge(std::move(all));
  MANTISSA_CHECK(entries.empty() || !merged.empty(), InvalidArgument, "split: ", part, " names \"",
                 entries.front(), "\", which has no bases; hold out contigs that have some");
  return merged;
}

void require_disjoint(const Genome& genome, const std::vector<Interval>& validation,
                      const std::vector<Interval>& test) {
  auto other = test.begin();
  for (const Interval& interval : validation) {
    while (other != test.end() &&
           (other->contig < interval.contig ||
            (other->contig == interval.contig && other->end <= interval.begin))) {
      ++other;
    }
    MANTISSA_CHECK(
        other == test.end() || other->contig != interval.contig || interval.end <= other->begin,
        InvalidArgument, "split: validation ", to_string(genome, interval), " and test ",
        to_string(genome, *other), " overlap; hold each base out for one of them");
  }
}

// The genome without `held_out`, which is sorted and disjoint.
std::vector<Interval> complement_of(const Genome& genome, const std::vector<Interval>& held_out) {
  std::vector<Interval> rest;
  auto next = held_out.begin();
  for (uint32_t contig = 0; contig < genome.contigs().size(); ++contig) {
    uint64_t begin = 0;
    for (; next != held_out.end() && next->contig == contig; ++next) {
      rest.push_back({contig, begin, next->begin});
      begin = next->end;
    }
    rest.push_back({contig, begin, genome.contigs()[contig].length});
  }
  std::erase_if(rest, [](const Interval& interval) { return interval.size() == 0; });
  return rest;
}

}  // namespace

Split split(const Genome& genome, const SplitSpec& spec) {
  MANTISSA_CHECK(genome.num_bases() > 0, InvalidArgument,
                 "split: the genome has no bases; give a FASTA file with sequences after its "
                 "headers");
  Split result;
  result.validation = find_all(genome, spec.validation, "validation");
  result.test = find_all(genome, spec.test, "test");
  require_disjoint(genome, result.validation, result.test);
  std::vector<Interval> held_out = result.validation;
  held_out.insert(held_out.end(), result.test.begin(), result.test.end());
  result.train = complement_of(genome, merge(std::move(held_out)));
  MANTISSA_CHECK(!result.train.empty(), InvalidArgument, "split: validation and test hold all ",
                 genome.num_bases(), " bases; leave some to train on");
  return result;
}

}  // namespace mantissa::genome
