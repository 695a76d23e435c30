#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include <c10/core/ScalarType.h>

#include "mantissa/numerics/format.h"

namespace mantissa::ops::cpu {

/// Passes over many tensors are cut into pieces that do not depend on the number of threads, so
/// that neither do the sums over them. What needs buffers goes through a piece in blocks that stay
/// in the L1 cache.
inline constexpr int64_t kPieceElements = 1 << 15;
inline constexpr int64_t kBlockElements = 1024;

/// Elements of one tensor: never none.
struct Piece {
  size_t tensor;
  int64_t begin;
  int64_t end;
};

/// The pieces of tensors with `sizes` elements, in order.
std::vector<Piece> pieces_of(const std::vector<int64_t>& sizes);

/// Calls body(p) for every pieces[p], in parallel. Neighbours that are small are one task, and
/// threads take tasks as they get done.
void for_pieces(const std::vector<Piece>& pieces, const std::function<void(size_t)>& body);

/// FP32, BF16 or FP16.
constexpr numerics::Format format_of(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Float      ? numerics::Format::fp32
         : dtype == c10::ScalarType::BFloat16 ? numerics::Format::bf16
                                              : numerics::Format::fp16;
}

/// Element `i` of an array of FP32, BF16 or FP16.
template <typename T>  // void or const void
T* element(T* data, c10::ScalarType dtype, int64_t i) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return static_cast<Byte*>(data) + (i * (dtype == c10::ScalarType::Float ? 4 : 2));
}

/// `count` elements of `data` (FP32, BF16 or FP16) from `begin` on as FP32: `data` itself, or
/// `buffer` filled.
const float* widen(const void* data, c10::ScalarType dtype, int64_t begin, int64_t count,
                   float* buffer);

/// Rounds `source` to nearest even into `count` elements of `data` (FP32, BF16 or FP16).
void narrow(const float* source, void* data, c10::ScalarType dtype, int64_t begin, int64_t count);

}  // namespace mantissa::ops::cpu
