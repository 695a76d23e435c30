#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/tensor/parameter_list.h"

/// Counts the bytes of live CPU tensors, exactly, by what they are for.
///
///     memory::install_counting_allocator();  // first thing in main()
///     { memory::CategoryScope scope(Category::weights); model = ...; }
///     memory::tag_gradients(model.parameters());
///     memory::reset_peak();
///     ... train ...
///     memory::peak_bytes().of(Category::gradients);
///
/// All functions are thread-safe but the installation.
namespace mantissa::tensor::memory {

enum class Category { weights, gradients, optimizer, activations, other };

inline constexpr std::array<Category, 5> kCategories = {Category::weights, Category::gradients,
                                                        Category::optimizer, Category::activations,
                                                        Category::other};

MANTISSA_API std::string_view name_of(Category category);

/// Puts a counting allocator around LibTorch's allocator of CPU tensors, whichever that is. Call
/// it once, before there are tensors and threads; a later call does nothing. Tensors that exist
/// already are not counted. Each allocation takes 64 bytes more, which are not counted either.
///
/// From then on an allocation with which the tensors would outgrow what the system can give (see
/// ProcessMemory::usable_bytes) throws Error, one line, instead of letting the system kill the
/// process. It asks the system when the live bytes have grown by 64 MiB.
MANTISSA_API void install_counting_allocator();
MANTISSA_API bool is_counting();

/// What this thread allocates until the end of the scope is of `category`; outside of any scope it
/// is `other`. Scopes nest. A kernel's helper threads have no part in it.
class MANTISSA_API CategoryScope {
 public:
  explicit CategoryScope(Category category);
  ~CategoryScope();

  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  Category outer_;
};

/// Moves the storage of `tensor`, shared by all its views, to `category`. A tensor whose storage is
/// not counted (undefined, of another device, from before the installation) is left alone.
MANTISSA_API void retag(const at::Tensor& tensor, Category category);

/// From here on backward makes the gradients of these parameters `gradients`. They must be leaves
/// that require a gradient. A hook of the same kind that a parameter has is kept and runs first.
MANTISSA_API void tag_gradients(const ParameterList& parameters);

struct Bytes {
  std::array<int64_t, kCategories.size()> by_category{};

  int64_t of(Category category) const { return by_category[static_cast<size_t>(category)]; }
  MANTISSA_API int64_t total() const;
  MANTISSA_API std::map<std::string, int64_t> by_name() const;

  bool operator==(const Bytes&) const = default;
};

// These three throw InvalidArgument while nothing is counted: zero would be a wrong answer.

MANTISSA_API Bytes live_bytes();

/// The live bytes at the last moment when their total was highest, since the start or reset_peak().
/// The categories are of one moment: they add up to that total.
MANTISSA_API Bytes peak_bytes();
MANTISSA_API void reset_peak();

}  // namespace mantissa::tensor::memory
