#include "mantissa/ops/window_sums.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "mantissa/ops/block_product.h"
#include "mantissa/ops/element.h"
#include "mantissa/ops/window_lines.h"
#include "mantissa/ops/window_products.h"

namespace mantissa::ops {
namespace {

// Thinner products leave the better part of the registers idle.
constexpr int64_t kLeastPanelSize = 8;

struct Window {
  int64_t image;
  std::array<int64_t, kAxes> position;
};

Window window_at(const Axes& axes, int64_t number) {
  Window window = {};
  for (size_t axis = kAxes; axis-- > 0;) {
    window.position[axis] = number % axes[axis].windows;
    number /= axes[axis].windows;
  }
  window.image = number;
  return window;
}

int64_t index_of(const Image& image, const Window& window, int64_t channel) {
  int64_t index = window.image * image.batch_stride + channel * image.channel_stride;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    index += window.position[axis] * image.strides[axis];
  }
  return index;
}

// What a window meets under a tap.
float met(const Axes& axes, const Image& source, const Window& window, int64_t channel,
          int64_t tap) {
  Window at = window;
  for (size_t axis = kAxes; axis-- > 0;) {
    const auto taps = std::ssize(axes[axis].taps);
    at.position[axis] = window.position[axis] * axes[axis].step +
                        axes[axis].taps[static_cast<size_t>(tap % taps)].offset;
    tap /= taps;
    if (at.position[axis] < 0 || at.position[axis] >= axes[axis].source) {
      return 0;
    }
  }
  return element(source.data, source.format, index_of(source, at, channel));
}

std::vector<int64_t> taps_in_order(const Axes& axes, bool by_groups) {
  std::vector<int64_t> order;
  if (by_groups) {
    for (const TapGroup& group : tap_groups(axes)) {
      for (const TapGroup::Member& tap : group.taps) {
        order.push_back(tap.number);
      }
    }
  } else {
    for (int64_t tap = 0; tap < taps_of(axes); ++tap) {
      order.push_back(tap);
    }
  }
  return order;
}

// As panel_product.h adds up: fused multiply-adds in order, in parts of kProductDepth terms.
class OrderedSum {
 public:
  void add(float a, float b) {
    part_ = std::fma(a, b, part_);
    if (++terms_ % kProductDepth == 0) {
      close();
    }
  }

  float value() {
    if (terms_ % kProductDepth != 0) {
      close();
    }
    return sum_;
  }

 private:
  void close() {
    sum_ = terms_ <= kProductDepth ? part_ : sum_ + part_;
    part_ = 0;
  }

  float sum_ = 0;
  float part_ = 0;
  int64_t terms_ = 0;
};

float sum_over_lines(const FilterGradient& gradient, int64_t row, int64_t channel, int64_t tap) {
  const int64_t windows = gradient.extent.batch * windows_of(gradient.axes);
  const int64_t step = line_windows(gradient.axes);
  float total = 0;
  for (int64_t first = 0; first < windows; first += step) {
    std::array<float, 16> sums = {};
    size_t in_row = 0;
    for (int64_t i = first; i < std::min(first + step, windows); ++i) {
      const Window window = window_at(gradient.axes, i);
      in_row = window.position.back() == 0 ? 0 : in_row;
      float& sum = sums[in_row++ % sums.size()];
      sum = std::fma(
          element(gradient.sums.data, gradient.sums.format, index_of(gradient.sums, window, row)),
          met(gradient.axes, gradient.source, window, channel, tap), sum);
    }
    for (size_t half = sums.size() / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) {
        sums[i] += sums[i + half];
      }
    }
    total += sums[0];
  }
  return total;
}

float sum_over_windows(const FilterGradient& gradient, int64_t row, int64_t channel, int64_t tap) {
  OrderedSum sum;
  const int64_t windows = gradient.extent.batch * windows_of(gradient.axes);
  for (int64_t i = 0; i < windows; ++i) {
    const Window window = window_at(gradient.axes, i);
    sum.add(element(gradient.sums.data, gradient.sums.format, index_of(gradient.sums, window, row)),
            met(gradient.axes, gradient.source, window, channel, tap));
  }
  return sum.value();
}

}  // namespace

std::vector<int64_t> tap_offsets(const Axes& axes, const Filter& filter) {
  std::vector<int64_t> offsets;
  for (const Tap& depth : axes[0].taps) {
    for (const Tap& height : axes[1].taps) {
      for (const Tap& width : axes[2].taps) {
        offsets.push_back(depth.index * filter.strides[0] + height.index * filter.strides[1] +
                          width.index * filter.strides[2]);
      }
    }
  }
  return offsets;
}

Axes positions_of(const Axes& axes) {
  Axes positions;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    positions[axis].source = axes[axis].windows;
    positions[axis].windows = axes[axis].windows;
  }
  return positions;
}

bool suits_panels(const WindowSums& sums) {
  return sums.extent.rows >= kLeastPanelSize && taps_of(sums.axes) > 0;
}

bool suits_panels(const FilterGradient& gradient) {
  return gradient.extent.rows >= kLeastPanelSize &&
         gradient.extent.channels * taps_of(gradient.axes) >= kLeastPanelSize;
}

void add_windows(const WindowSums& sums) {
  suits_panels(sums) ? add_by_panels(sums) : add_by_lines(sums);
}

void add_windows(const FilterGradient& gradient) {
  suits_panels(gradient) ? add_by_panels(gradient) : add_by_lines(gradient);
}

void add_windows_reference(const WindowSums& sums) {
  const Extent& extent = sums.extent;
  const Filter& filter = sums.filter;
  const std::vector<int64_t> offsets = tap_offsets(sums.axes, filter);
  const std::vector<int64_t> order = taps_in_order(sums.axes, !suits_panels(sums));
  for (int64_t i = 0; i < extent.batch * windows_of(sums.axes); ++i) {
    const Window window = window_at(sums.axes, i);
    for (int64_t row = 0; row < extent.groups * extent.rows; ++row) {
      const int64_t group = row / extent.rows;
      OrderedSum parts;
      float whole = 0;
      for (int64_t c = 0; c < extent.channels; ++c) {
        for (int64_t tap : order) {
          const float factor =
              element(filter.data, filter.format,
                      group * filter.group_stride + row % extent.rows * filter.row_stride +
                          c * filter.channel_stride + offsets[static_cast<size_t>(tap)]);
          const float number =
              met(sums.axes, sums.source, window, group * extent.channels + c, tap);
          parts.add(factor, number);
          whole = std::fma(factor, number, whole);
        }
      }
      float sum = suits_panels(sums) ? parts.value() : whole;
      if (sums.bias != nullptr) {
        sum += sums.bias[row];
      }
      set_element(sums.result.data, sums.result.format, index_of(sums.result, window, row), sum);
    }
  }
}

void add_windows_reference(const FilterGradient& gradient) {
  const Extent& extent = gradient.extent;
  const Filter& to = gradient.gradient;
  const std::vector<int64_t> offsets = tap_offsets(gradient.axes, to);
  for (int64_t row = 0; row < extent.groups * extent.rows; ++row) {
    const int64_t group = row / extent.rows;
    for (int64_t c = 0; c < extent.channels; ++c) {
      for (int64_t tap = 0; tap < taps_of(gradient.axes); ++tap) {
        const int64_t channel = group * extent.channels + c;
        set_element(to.data, to.format,
                    group * to.group_stride + row % extent.rows * to.row_stride +
                        c * to.channel_stride + offsets[static_cast<size_t>(tap)],
                    suits_panels(gradient) ? sum_over_windows(gradient, row, channel, tap)
                                           : sum_over_lines(gradient, row, channel, tap));
      }
    }
  }
}

}  // namespace mantissa::ops
