#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/base/arena.h"
#include "mantissa/base/error.h"
#include "mantissa/tensor/parameter_list.h"

/// Counts the bytes of live CPU tensors, exactly, by what they are for, and keeps their memory for
/// the next ones.
///
///     memory::install_counting_allocator();  // first thing in main()
///     memory::set_allocator(Allocator::caching);
///     { memory::CategoryScope scope(Category::weights); model = ...; }
///     memory::tag_gradients(model.parameters());
///     memory::reset_peak();
///     ... train ...
///     memory::peak_bytes().of(Category::gradients);
///     memory::peak().holders.front().scope;  // who had most of it
///
/// All functions are thread-safe but the installation.
namespace mantissa::tensor::memory {

enum class Category {
  weights,
  gradients,
  optimizer,
  activations,
  casts,  // of FP32 weights to 16 bits, within a step
  other,
};

inline constexpr std::array<Category, 6> kCategories = {Category::weights,   Category::gradients,
                                                        Category::optimizer, Category::activations,
                                                        Category::casts,     Category::other};

MANTISSA_API std::string_view name_of(Category category);

/// Tensors would outgrow what the system can give this process.
class MANTISSA_API OutOfMemory : public Error {
 public:
  using Error::Error;
  ~OutOfMemory() override;
};

/// Puts a counting allocator around LibTorch's allocator of CPU tensors, whichever that is. Call
/// it once, before there are tensors and threads; a later call does nothing. Tensors that exist
/// already are not counted. Each allocation takes 64 bytes more, which are not counted either.
///
/// From then on an allocation with which the tensors would outgrow what the system can give (see
/// ProcessMemory::usable_bytes) throws OutOfMemory, one line, instead of letting the system kill
/// the process. It asks the system when the live bytes have grown by 64 MiB; memory that is kept
/// for later tensors is given back first. An allocation that the system refuses is one too.
MANTISSA_API void install_counting_allocator();
MANTISSA_API bool is_counting();

/// The bytes that tensors may have in all, with those they have, before an allocation is refused;
/// the largest number where the system does not tell.
MANTISSA_API int64_t room_for_tensors();

/// Where tensors get their memory.
enum class Allocator {
  system,     // from LibTorch's allocator, as it was at the installation
  caching,    // large ones from an arena of this process (base/arena.h), which keeps what is freed
  addresses,  // large ones get none, but pages of zeros on first touch: see ShapesOnly; no run has
              // it
};

MANTISSA_API std::string_view name_of(Allocator allocator);

/// Those that a run may have: caching and system.
MANTISSA_API Allocator parse_allocator(std::string_view name);

/// Of tensors from here on; those that exist stay where they are, and are freed as they must be.
/// At first it is `system`. Throws InvalidArgument while nothing is counted.
///
/// `caching`: a training step asks for the same sizes again and again, and the system hands out
/// each page of them anew, zeroed. The arena keeps freed memory, in huge pages, up to a 32nd part
/// above the most that was live at once; what is beyond goes back to the system. It takes
/// addresses for four times the machine's memory, or a quarter of what a limit on them (ulimit -v)
/// leaves; what does not fit in comes from the system's allocator. Tensors of less than 16 KiB
/// always do. A process that was forked goes on with a copy.
MANTISSA_API void set_allocator(Allocator allocator);
MANTISSA_API Allocator current_allocator();

/// Gives what the arena keeps for later tensors back to the system. Returns the bytes.
MANTISSA_API int64_t release_cached();

/// All zero while the arena was never chosen.
MANTISSA_API ArenaStatistics caching_statistics();

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

// These throw InvalidArgument while nothing is counted: zero would be a wrong answer.

MANTISSA_API Bytes live_bytes();

/// Bytes that one category gained or lost.
struct Change {
  Category category = Category::other;
  int64_t bytes = 0;
};

/// Writes down every change of the live bytes while it lives, in order; one at a time. With them
/// the peak of any part of the memory can be found afterwards.
class MANTISSA_API Journal {
 public:
  Journal();
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// Those so far.
  std::vector<Change> changes() const;
};

/// What one scope has of one category (tensor/scope.h). A scope has what was allocated within it,
/// a gradient that of its parameter: blocks.0.mlp for blocks.0.mlp.weight.
struct Holder {
  Category category = Category::other;
  std::string scope;
  int64_t bytes = 0;

  bool operator==(const Holder&) const = default;
};

struct Peak {
  Bytes bytes;
  std::vector<Holder> holders;  // largest first; they add up to `bytes`
};

/// The last moment when the total of the live bytes was highest, since the start or reset_peak().
/// Categories and holders are of this one moment.
MANTISSA_API Peak peak();
MANTISSA_API Bytes peak_bytes();
MANTISSA_API void reset_peak();

}  // namespace mantissa::tensor::memory
