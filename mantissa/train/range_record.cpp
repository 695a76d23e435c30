#include "mantissa/train/range_record.h"

#include <string>

namespace mantissa::train {
namespace {

void add_exponents(const numerics::ExponentHistogram& values, record::ValueRange& range) {
  size_t begin = 0;
  size_t end = values.bins.size();
  while (begin < end && values.bins[begin] == 0) {
    ++begin;
  }
  while (end > begin && values.bins[end - 1] == 0) {
    --end;
  }
  range.first_exponent = begin < end ? numerics::exponent_of_bin(begin) : 0;
  range.exponents.assign(values.bins.begin() + static_cast<int64_t>(begin),
                         values.bins.begin() + static_cast<int64_t>(end));
}

record::ValueRange range_of(const monitor::Range& from) {
  const numerics::ExponentHistogram& values = from.values;
  record::ValueRange range;
  range.kind = to_string(from.kind);
  range.scope = from.scope;
  range.name = from.name;
  range.format = from.format;
  range.count = values.count;
  range.zeros = values.zeros;
  range.nan = values.nan;
  range.positive_infinity = values.positive_infinity;
  range.negative_infinity = values.negative_infinity;
  range.smallest = values.smallest;
  range.largest = values.largest;
  add_exponents(values, range);
  for (const numerics::Format format : numerics::kNarrowFormats) {
    const numerics::NarrowCounts& counts = values.in(format);
    range.narrow[std::string(numerics::to_string(format))] = {
        {"zero", counts.zero}, {"subnormal", counts.subnormal}, {"overflow", counts.overflow}};
  }
  return range;
}

}  // namespace

record::Ranges range_event(int64_t step, const monitor::Ranges& ranges, double scale) {
  record::Ranges event{step, scale, {}};
  event.values.reserve(ranges.all().size());
  for (const monitor::Range& range : ranges.all()) {
    event.values.push_back(range_of(range));
  }
  return event;
}

}  // namespace mantissa::train
