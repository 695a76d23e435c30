#include "mantissa/ops/window_lines.h"

#include <algorithm>
#include <optional>

#include <ATen/Parallel.h>

#include "mantissa/ops/element.h"
#include "mantissa/ops/parallel.h"
#include "mantissa/ops/scratch.h"

namespace mantissa::ops {
namespace {

using cpu::Segment;

constexpr int64_t kRows = 8;    // of results at once
constexpr int64_t kUnits = 64;  // rows of a filter at once

struct Workspace {
  Scratch line;
  Scratch other;
  Scratch sums;
};

Workspace& workspace() {
  static thread_local Workspace instance;
  return instance;
}

/// Windows of a range, and how the lines for each group of taps are filled.
struct Lines {
  Lines(const Axes& axes, const Image& source, const std::vector<TapGroup>& groups, int64_t first,
        int64_t count)
      : windows(axes, first, count, largest_shift(groups)),
        stride(axes.back().step * source.strides.back()),
        segments(groups.size()) {
    for (size_t i = 0; i < groups.size(); ++i) {
      windows.find_segments(axes, source, groups[i], segments[i]);
    }
  }

  void fill(const Image& source, int64_t channel, size_t group, float* line) const {
    cpu::fill_line(source.from(channel).data, source.format, stride, source.channel_stride,
                   segments[group], line);
  }

  int64_t size() const { return windows.line_size() + cpu::kWindowSlack; }

  WindowRange windows;
  int64_t stride;
  std::vector<std::vector<Segment>> segments;
};

std::vector<std::vector<int64_t>> shifts_of(const std::vector<TapGroup>& groups) {
  std::vector<std::vector<int64_t>> shifts;
  for (const TapGroup& group : groups) {
    shifts.emplace_back();
    for (const TapGroup::Member& tap : group.taps) {
      shifts.back().push_back(tap.shift);
    }
  }
  return shifts;
}

/// The windows of a range, for one group of channels after the other.
class LineSums {
 public:
  LineSums(const WindowSums& sums, int64_t first, int64_t count)
      : sums_(sums),
        count_(count),
        groups_(tap_groups(sums.axes)),
        shifts_(shifts_of(groups_)),
        offsets_(tap_offsets(sums.axes, sums.filter)),
        lines_(sums.axes, sums.source, groups_, first, count),
        places_(places_of(lines_.windows, sums.result)) {}

  void run(int64_t group) {
    Workspace& space = workspace();
    const int64_t size = lines_.size();
    float* line = space.line.of_size(size + largest_shift(groups_));
    float* sums = space.sums.of_size(kRows * size);
    for (int64_t row = 0; row < sums_.extent.rows; row += kRows) {
      const int64_t rows = std::min(kRows, sums_.extent.rows - row);
      if (groups_.empty()) {
        std::fill_n(sums, rows * size, 0.0F);
      }
      for (int64_t c = 0; c < sums_.extent.channels; ++c) {
        for (size_t i = 0; i < groups_.size(); ++i) {
          lines_.fill(sums_.source, group * sums_.extent.channels + c, i, line);
          find_factors(group, row, rows, c, groups_[i]);
          cpu::add_shifted(line, factors_, shifts_[i],
                           {sums, size, rows, lines_.windows.line_size(), c > 0 || i > 0});
        }
      }
      for (int64_t j = 0; j < rows; ++j) {
        store(sums + j * size, group * sums_.extent.rows + row + j);
      }
    }
  }

 private:
  void find_factors(int64_t group, int64_t row, int64_t rows, int64_t channel,
                    const TapGroup& taps) {
    const Filter& filter = sums_.filter;
    factors_.clear();
    for (int64_t j = 0; j < rows; ++j) {
      const int64_t first = group * filter.group_stride + (row + j) * filter.row_stride +
                            channel * filter.channel_stride;
      for (const TapGroup::Member& tap : taps.taps) {
        factors_.push_back(
            element(filter.data, filter.format, first + offsets_[static_cast<size_t>(tap.number)]));
      }
    }
  }

  void store(float* line, int64_t channel) {
    for (const WindowRange::Run& run : lines_.windows.runs()) {
      if (run.at != run.number) {
        std::copy_n(line + run.at, run.count, line + run.number);
      }
    }
    if (sums_.bias != nullptr) {
      for (int64_t i = 0; i < count_; ++i) {
        line[i] += sums_.bias[channel];
      }
    }
    ops::store(line, count_, places_, sums_.result, channel);
  }

  const WindowSums& sums_;
  const int64_t count_;
  const std::vector<TapGroup> groups_;
  const std::vector<std::vector<int64_t>> shifts_;
  const std::vector<int64_t> offsets_;
  const Lines lines_;
  const std::vector<Place> places_;
  std::vector<float> factors_;
};

const TapGroup kOneTap = {{0, 0, 0}, {{0, 0}}};

/// Some of the dot products of which a filter's gradient consists: one for a row, a channel and all
/// taps. They are counted by group, channel and row.
class LineGradients {
 public:
  LineGradients(const FilterGradient& gradient, int64_t begin, int64_t end)
      : gradient_(gradient),
        begin_(begin),
        end_(end),
        groups_(tap_groups(gradient.axes)),
        shifts_(shifts_of(groups_)),
        num_taps_(taps_of(gradient.axes)),
        totals_(static_cast<size_t>((end - begin) * num_taps_), 0.0F) {}

  void run() {
    const int64_t windows = gradient_.extent.batch * windows_of(gradient_.axes);
    const int64_t step = line_windows(gradient_.axes);
    for (int64_t first = 0; first < windows; first += step) {
      add(first, std::min(step, windows - first));
    }
    store();
  }

 private:
  void add(int64_t first, int64_t count) {
    const Extent& extent = gradient_.extent;
    const Lines lines(gradient_.axes, gradient_.source, groups_, first, count);
    // The numbers that belong to the windows, in lines of the same shape.
    const Axes positions = positions_of(gradient_.axes);
    std::vector<Segment> segments;
    lines.windows.find_segments(positions, gradient_.sums, kOneTap, segments);
    std::vector<cpu::Stretch> stretches;
    for (const WindowRange::Run& run : lines.windows.runs()) {
      stretches.push_back({run.at, run.count});
    }
    Workspace& space = workspace();
    float* line = space.line.of_size(lines.size() + largest_shift(groups_));
    float* sums = space.other.of_size(lines.size());
    int64_t filled = -1;
    for (int64_t unit = begin_; unit < end_; ++unit) {
      const int64_t channel = unit / extent.rows;
      const int64_t row = channel / extent.channels * extent.rows + unit % extent.rows;
      cpu::fill_line(gradient_.sums.from(row).data, gradient_.sums.format,
                     gradient_.sums.strides.back(), gradient_.sums.channel_stride, segments, sums);
      float* totals = totals_.data() + (unit - begin_) * num_taps_;
      for (size_t i = 0; i < groups_.size(); ++i) {
        if (groups_.size() > 1 || channel != filled) {
          lines.fill(gradient_.source, channel, i, line);
          filled = channel;
        }
        dots_.resize(shifts_[i].size());
        cpu::dot_shifted(sums, line, stretches, shifts_[i], dots_.data());
        for (size_t t = 0; t < dots_.size(); ++t) {
          totals[groups_[i].taps[t].number] += dots_[t];
        }
      }
    }
  }

  void store() const {
    const Filter& to = gradient_.gradient;
    const std::vector<int64_t> offsets = tap_offsets(gradient_.axes, to);
    const float* total = totals_.data();
    for (int64_t unit = begin_; unit < end_; ++unit) {
      const int64_t channel = unit / gradient_.extent.rows;
      const int64_t first = channel / gradient_.extent.channels * to.group_stride +
                            unit % gradient_.extent.rows * to.row_stride +
                            channel % gradient_.extent.channels * to.channel_stride;
      for (int64_t offset : offsets) {
        set_element(to.data, to.format, first + offset, *total++);
      }
    }
  }

  const FilterGradient& gradient_;
  const int64_t begin_;
  const int64_t end_;
  const std::vector<TapGroup> groups_;
  const std::vector<std::vector<int64_t>> shifts_;
  const int64_t num_taps_;
  std::vector<float> totals_;
  std::vector<float> dots_;
};

// Calls `call` for parts of 0 to `count`, at most kUnits long and enough for all threads. Where it
// is cut has no effect on the results.
template <typename Call>
void in_parts(int64_t count, const Call& call) {
  const int64_t threads = at::get_num_threads();
  const int64_t part = std::clamp<int64_t>(count / threads, 1, kUnits);
  parallel_for(0, (count + part - 1) / part, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      call(i * part, std::min(part, count - i * part));
    }
  });
}

}  // namespace

int64_t line_windows(const Axes& axes) {
  // Short rows and large filters have many segments.
  constexpr int64_t kMostSegments = 1 << 14;
  const auto groups = std::max<int64_t>(1, std::ssize(tap_groups(axes)));
  return std::clamp(kMostSegments / groups * axes.back().windows, int64_t{64}, kMostWindows);
}

void add_by_lines(const WindowSums& sums) {
  const int64_t windows = sums.extent.batch * windows_of(sums.axes);
  const int64_t groups = sums.extent.groups;
  const int64_t threads = at::get_num_threads();
  // Without effect on the results.
  const int64_t step = std::clamp<int64_t>(windows * groups / threads, 64, line_windows(sums.axes));
  parallel_for(0, (windows + step - 1) / step * groups, 1, [&](int64_t begin, int64_t end) {
    std::optional<LineSums> range;
    for (int64_t i = begin; i < end; ++i) {
      if (i == begin || i % groups == 0) {
        const int64_t first = i / groups * step;
        range.emplace(sums, first, std::min(step, windows - first));
      }
      range->run(i % groups);
    }
  });
}

void add_by_lines(const FilterGradient& gradient) {
  const Extent& extent = gradient.extent;
  in_parts(extent.groups * extent.rows * extent.channels, [&](int64_t first, int64_t count) {
    LineGradients(gradient, first, first + count).run();
  });
}

void add_channels(const Image& image, const Axes& axes, int64_t batch, int64_t channels,
                  float* sums) {
  const Axes positions = positions_of(axes);
  const int64_t windows = batch * windows_of(axes);
  in_parts(channels, [&](int64_t begin, int64_t count) {
    std::fill_n(sums + begin, count, 0.0F);
    for (int64_t first = 0; first < windows; first += kMostWindows) {
      const Lines lines(positions, image, {kOneTap}, first,
                        std::min(kMostWindows, windows - first));
      const int64_t size = lines.windows.line_size();
      float* line = workspace().line.of_size(lines.size());
      float* ones = workspace().other.of_size(lines.size());
      std::fill_n(ones, size, 1.0F);
      for (int64_t channel = begin; channel < begin + count; ++channel) {
        lines.fill(image, channel, 0, line);
        float sum = 0;
        const std::array<cpu::Stretch, 1> whole = {{{0, size}}};
        const std::array<int64_t, 1> shift = {0};
        cpu::dot_shifted(ones, line, whole, shift, &sum);
        sums[channel] += sum;
      }
    }
  });
}

}  // namespace mantissa::ops
