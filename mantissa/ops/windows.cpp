#include "mantissa/ops/windows.h"

#include <algorithm>
#include <cstdlib>

#include "mantissa/base/error.h"
#include "mantissa/ops/cpu/blocks.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::ops {
namespace {

constexpr size_t kLast = kAxes - 1;
constexpr int64_t kMostShift = 128;

int64_t divide_up(int64_t value, int64_t step) {
  return value >= 0 ? (value + step - 1) / step : -(-value / step);
}

bool is_in(int64_t position, int64_t size) { return position >= 0 && position < size; }

}  // namespace

int64_t windows_of(const Axes& axes) { return axes[0].windows * axes[1].windows * axes[2].windows; }

int64_t taps_of(const Axes& axes) {
  return static_cast<int64_t>(axes[0].taps.size() * axes[1].taps.size() * axes[2].taps.size());
}

Image Image::from(int64_t channel) const {
  Image rest = *this;
  rest.data = static_cast<char*>(data) +
              channel * channel_stride * (numerics::info(format).storage_bits / 8);
  return rest;
}

void merge_axes(Axes& axes, Image& source, Image& windows) {
  const auto is_plain = [](const Axis& axis) {
    return axis.taps.size() == 1 && axis.taps[0].index == 0 && axis.taps[0].offset == 0 &&
           axis.step == 1 && axis.source == axis.windows;
  };
  Axis& last = axes[kLast];
  for (size_t axis = kLast; is_plain(last) && axis-- > 0 && is_plain(axes[axis]);) {
    const auto follows = [&](const Image& image) {
      return image.strides[axis] == image.strides[kLast] * last.source;
    };
    if (axes[axis].source > 1 && !(follows(source) && follows(windows))) {
      return;
    }
    last.source *= axes[axis].source;
    last.windows = last.source;
    axes[axis] = Axis();
  }
}

std::vector<TapGroup> tap_groups(const Axes& axes) {
  const Axis& last = axes[kLast];
  const int64_t most = std::min<int64_t>(kMostShift, 2 * last.windows);
  std::vector<TapGroup> groups;
  int64_t number = 0;
  for (const Tap& depth : axes[0].taps) {
    for (const Tap& height : axes[1].taps) {
      const auto row = std::ssize(groups);  // its first group
      for (const Tap& width : last.taps) {
        const auto takes = [&](TapGroup& group) {
          const int64_t distance = width.offset - group.offset[kLast];
          const int64_t shift = distance / last.step;
          if (distance % last.step != 0 || std::abs(shift) > most) {
            return false;
          }
          group.taps.push_back({number, shift});
          return true;
        };
        if (std::none_of(groups.begin() + row, groups.end(), takes)) {
          groups.push_back({{depth.offset, height.offset, width.offset}, {{number, 0}}});
        }
        ++number;
      }
    }
  }
  for (TapGroup& group : groups) {  // from the least, for offsets may descend
    int64_t least = 0;
    for (const TapGroup::Member& member : group.taps) {
      least = std::min(least, member.shift);
    }
    group.offset[kLast] += least * last.step;
    for (TapGroup::Member& member : group.taps) {
      member.shift -= least;
    }
  }
  return groups;
}

int64_t largest_shift(const std::vector<TapGroup>& groups) {
  int64_t largest = 0;
  for (const TapGroup& group : groups) {
    for (const TapGroup::Member& member : group.taps) {
      largest = std::max(largest, member.shift);
    }
  }
  return largest;
}

WindowRange::WindowRange(const Axes& axes, int64_t first, int64_t count, int64_t margin)
    : margin_(margin) {
  int64_t at = first;
  const auto take = [&](const Axis& axis) {
    const int64_t position = at % axis.windows;
    at /= axis.windows;
    return position;
  };
  Run run = {};
  run.window[2] = take(axes[2]);
  run.window[1] = take(axes[1]);
  run.window[0] = take(axes[0]);
  run.image = at;
  while (run.number < count) {
    run.count = std::min(axes[kLast].windows - run.window[kLast], count - run.number);
    run.at = line_size_;
    runs_.push_back(run);
    line_size_ += run.count + margin;
    run.number += run.count;
    run.window[2] = 0;
    if (++run.window[1] == axes[1].windows) {
      run.window[1] = 0;
      if (++run.window[0] == axes[0].windows) {
        run.window[0] = 0;
        ++run.image;
      }
    }
  }
}

void WindowRange::find_segments(const Axes& axes, const Image& source, const TapGroup& group,
                                std::vector<cpu::Segment>& segments) const {
  segments.clear();
  const Axis& last = axes[kLast];
  for (const Run& run : runs_) {
    const int64_t size = run.count + margin_;
    const int64_t depth = run.window[0] * axes[0].step + group.offset[0];
    const int64_t height = run.window[1] * axes[1].step + group.offset[1];
    const int64_t width = run.window[2] * last.step + group.offset[2];
    int64_t begin = 0;
    int64_t end = 0;
    if (is_in(depth, axes[0].source) && is_in(height, axes[1].source)) {
      begin = std::clamp<int64_t>(divide_up(-width, last.step), 0, size);
      end = std::clamp(divide_up(last.source - width, last.step), begin, size);
    }
    segments.push_back({run.image * source.batch_stride + depth * source.strides[0] +
                            height * source.strides[1] +
                            (width + begin * last.step) * source.strides[2],
                        end - begin, run.at, begin, size - end});
  }
}

std::vector<Place> places_of(const WindowRange& range, const Image& image) {
  std::vector<Place> places;
  for (const WindowRange::Run& run : range.runs()) {
    int64_t offset = run.image * image.batch_stride;
    for (size_t axis = 0; axis < kAxes; ++axis) {
      offset += run.window[axis] * image.strides[axis];
    }
    if (!places.empty() &&
        places.back().offset + places.back().count * image.strides[kLast] == offset) {
      places.back().count += run.count;
    } else {
      places.push_back({offset, run.number, run.count});
    }
  }
  return places;
}

namespace {

template <typename Number>
void put(const Number* numbers, const std::vector<Place>& places, int64_t first, int64_t stride,
         void* data) {
  for (const Place& place : places) {
    const Number* from = numbers + place.number;
    Number* to = static_cast<Number*>(data) + first + place.offset;
    if (stride == 1 && place.count > 1) {
      std::copy_n(from, place.count, to);
      continue;
    }
    for (int64_t i = 0; i < place.count; ++i) {
      to[i * stride] = from[i];
    }
  }
}

}  // namespace

void store(const float* numbers, int64_t count, const std::vector<Place>& places,
           const Image& image, int64_t channel) {
  const int64_t first = channel * image.channel_stride;
  const int64_t stride = image.strides[kLast];
  if (image.format == numerics::Format::fp32) {
    return put(numbers, places, first, stride, image.data);
  }
  const at::ScalarType dtype = tensor::dtype_of(image.format);
  if (places.size() == 1 && stride == 1) {
    return cpu::narrow(numbers, image.data, dtype, first + places[0].offset, count);
  }
  MANTISSA_ASSERT(count <= kMostWindows);
  std::array<uint16_t, kMostWindows> patterns;
  cpu::narrow(numbers, patterns.data(), dtype, 0, count);
  put(patterns.data(), places, first, stride, image.data);
}

}  // namespace mantissa::ops
