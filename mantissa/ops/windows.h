#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"
#include "mantissa/ops/cpu/window_kernel.h"

/// The geometry of convolutions: windows that slide over an image.
namespace mantissa::ops {

inline constexpr size_t kAxes = 3;  // fewer are led by axes of size 1

struct Tap {
  int64_t index;   // in the filter, along the axis
  int64_t offset;  // from the start of a window
};

/// Window o meets position o * step + offset of the source, for each tap; positions that the source
/// lacks are zeros.
struct Axis {
  int64_t source = 1;
  int64_t windows = 1;
  int64_t step = 1;
  std::vector<Tap> taps = {{0, 0}};
};

using Axes = std::array<Axis, kAxes>;

int64_t windows_of(const Axes& axes);
MANTISSA_API int64_t taps_of(const Axes& axes);

/// Numbers of a batch, by channel and position; strides count numbers. bf16 and fp16 are patterns,
/// fp32 floats, tf32 floats that are rounded when read.
struct Image {
  void* data;
  numerics::Format format;
  int64_t batch_stride;
  int64_t channel_stride;
  std::array<int64_t, kAxes> strides;

  /// The image from channel `channel` on.
  Image from(int64_t channel) const;
};

/// Makes one axis of those along which every window is one position, if both images allow it.
void merge_axes(Axes& axes, Image& source, Image& windows);

/// Taps that one line of the source serves: it has what stands at `offset` in every window. What
/// tap `number` meets, of all taps in the order of the filter's axes, is `shift` further in the
/// line.
struct TapGroup {
  struct Member {
    int64_t number;
    int64_t shift;
  };
  std::array<int64_t, kAxes> offset;
  std::vector<Member> taps;
};

/// Groups with shifts of 128 at most and of twice the windows of a row. Where windows are more than
/// 1 apart, taps belong together that are a multiple of that apart.
MANTISSA_API std::vector<TapGroup> tap_groups(const Axes& axes);

/// The largest shift.
int64_t largest_shift(const std::vector<TapGroup>& groups);

/// Windows `first` to `first + count` of those of a batch, counted along the last axis, then along
/// the others, then by image.
class WindowRange {
 public:
  /// Windows in a row.
  struct Run {
    int64_t image;
    std::array<int64_t, kAxes> window;  // the first
    int64_t count;
    int64_t number;  // of the first, from that of the range
    int64_t at;      // of the first, in a line
  };

  WindowRange() = default;
  /// A line has `margin` numbers more than windows for each run.
  WindowRange(const Axes& axes, int64_t first, int64_t count, int64_t margin);

  const std::vector<Run>& runs() const { return runs_; }
  int64_t line_size() const { return line_size_; }

  /// How a line is filled for a group of taps.
  void find_segments(const Axes& axes, const Image& source, const TapGroup& group,
                     std::vector<cpu::Segment>& segments) const;

 private:
  std::vector<Run> runs_;
  int64_t margin_ = 0;
  int64_t line_size_ = 0;
};

/// Where the windows of a range lie in an image that has one number for each: stretches with
/// equal distances.
struct Place {
  int64_t offset;
  int64_t number;  // of the first, from that of the range
  int64_t count;
};

std::vector<Place> places_of(const WindowRange& range, const Image& image);

inline constexpr int64_t kMostWindows = 2048;

/// Rounds `count` numbers, kMostWindows at most, into channel `channel` of an image.
void store(const float* numbers, int64_t count, const std::vector<Place>& places,
           const Image& image, int64_t channel);

}  // namespace mantissa::ops
