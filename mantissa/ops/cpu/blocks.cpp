#include "mantissa/ops/cpu/blocks.h"

#include <algorithm>
#include <atomic>
#include <span>

#include <ATen/Parallel.h>

#include "mantissa/numerics/convert.h"
#include "mantissa/ops/parallel.h"

namespace mantissa::ops::cpu {

std::vector<Piece> pieces_of(const std::vector<int64_t>& sizes) {
  std::vector<Piece> pieces;
  for (size_t tensor = 0; tensor < sizes.size(); ++tensor) {
    for (int64_t begin = 0; begin < sizes[tensor]; begin += kPieceElements) {
      pieces.push_back({tensor, begin, std::min(begin + kPieceElements, sizes[tensor])});
    }
  }
  return pieces;
}

void for_pieces(const std::vector<Piece>& pieces, const std::function<void(size_t)>& body) {
  // What it costs to begin a piece, as elements.
  constexpr int64_t kBegin = 64;
  std::vector<size_t> begins;  // of tasks, in pieces
  int64_t left = 0;            // in the last task
  for (size_t p = 0; p < pieces.size(); ++p) {
    const int64_t cost = pieces[p].end - pieces[p].begin + kBegin;
    if (cost > left) {
      begins.push_back(p);
      left = kPieceElements + kBegin;
    }
    left -= cost;
  }
  const size_t tasks = begins.size();
  begins.push_back(pieces.size());
  std::atomic<size_t> next = 0;
  const auto threads = static_cast<int64_t>(std::min<size_t>(tasks, at::get_num_threads()));
  parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (size_t task = next++; task < tasks; task = next++) {
      for (size_t p = begins[task]; p < begins[task + 1]; ++p) {
        body(p);
      }
    }
  });
}

const float* widen(const void* data, c10::ScalarType dtype, int64_t begin, int64_t count,
                   float* buffer) {
  if (dtype == c10::ScalarType::Float) {
    return static_cast<const float*>(data) + begin;
  }
  const auto size = static_cast<size_t>(count);
  numerics::decode(format_of(dtype), std::span(static_cast<const uint16_t*>(data) + begin, size),
                   std::span(buffer, size));
  return buffer;
}

void narrow(const float* source, void* data, c10::ScalarType dtype, int64_t begin, int64_t count) {
  if (dtype == c10::ScalarType::Float) {
    std::copy_n(source, count, static_cast<float*>(data) + begin);
    return;
  }
  const auto size = static_cast<size_t>(count);
  numerics::encode(format_of(dtype), std::span(source, size),
                   std::span(static_cast<uint16_t*>(data) + begin, size));
}

}  // namespace mantissa::ops::cpu
