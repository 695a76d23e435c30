#include "mantissa/amp/cast_cache.h"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/hash.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::amp {
namespace {

using Key = std::pair<const c10::TensorImpl*, at::ScalarType>;

struct KeyHash {
  size_t operator()(const Key& key) const {
    return c10::hash_combine(std::hash<const c10::TensorImpl*>()(key.first),
                             static_cast<size_t>(key.second));
  }
};

// Weak references keep the addresses from being reused, but not the memory of the numbers.
struct Entry {
  c10::weak_intrusive_ptr<c10::TensorImpl> source;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  int64_t version;
  int64_t offset;
  c10::DimVector sizes;
  c10::DimVector strides;
  at::Tensor cast;

  Entry(const at::Tensor& tensor, at::Tensor cast_tensor)
      : source(tensor.getIntrusivePtr()),
        storage(tensor.storage().getWeakStorageImpl()),
        version(tensor._version()),
        offset(tensor.storage_offset()),
        sizes(tensor.sizes()),
        strides(tensor.strides()),
        cast(std::move(cast_tensor)) {}

  // A shared history is one that torch's rule needs, whose uses add up their gradients in 16 bits.
  bool holds(const at::Tensor& tensor, bool needs_shared_history) const {
    return (!needs_shared_history || cast.requires_grad()) && tensor._version() == version &&
           tensor.storage().unsafeGetStorageImpl() == storage._unsafe_get_target() &&
           tensor.storage_offset() == offset && tensor.sizes() == sizes &&
           tensor.strides() == strides;
  }
};

constexpr size_t kFewEntries = 16;

struct ThreadCache {
  std::unordered_map<Key, Entry, KeyHash> entries;
  size_t sweep_at = kFewEntries;
  CastStatistics statistics;
};

// Weights that are made and freed within a long region must not leave their casts behind. Looks at
// all entries each time that they have doubled, so that a cast costs the same on average.
void drop_casts_of_freed_weights(ThreadCache& cache) {
  if (cache.entries.size() >= cache.sweep_at) {
    std::erase_if(cache.entries, [](const auto& item) { return item.second.source.expired(); });
    cache.sweep_at = std::max(kFewEntries, 2 * cache.entries.size());
  }
}

ThreadCache& thread_cache() {
  thread_local ThreadCache cache;
  return cache;
}

bool cacheable(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor::is_16bit(dtype) && tensor.scalar_type() == at::kFloat && tensor.requires_grad() &&
         tensor.is_leaf() && !tensor.is_view() && !tensor.is_inference() && tensor.has_storage();
}

// The backward of a cast whose numbers come from elsewhere.
class CastBackward : public torch::autograd::Node {
 public:
  explicit CastBackward(at::ScalarType source) : source_(source) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor& gradient = gradients[0];
    return {gradient.defined() ? gradient.to(source_) : gradient};
  }

  std::string name() const override { return "mantissa::CastBackward"; }

 private:
  at::ScalarType source_;
};

// LibTorch 2.11 counts references to nodes outside of them, 2.13 inside.
using NodePointer = std::decay_t<decltype(std::declval<at::Tensor>().grad_fn())>;

template <typename Node, typename Argument>
NodePointer make_node(Argument argument) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<Node>(argument);
  } else {
    return c10::make_intrusive<Node>(argument);
  }
}

// `numbers`, a tensor without history, as the recorded cast of `source`.
at::Tensor recorded_cast(const at::Tensor& source, at::Tensor numbers) {
  if (at::GradMode::is_enabled() && source.requires_grad()) {
    const NodePointer node = make_node<CastBackward>(source.scalar_type());
    node->set_next_edges(torch::autograd::collect_next_edges(source));
    torch::autograd::set_history(numbers, node);
  }
  return numbers;
}

bool is_expanded(const at::Tensor& tensor) {
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.stride(i) == 0 && tensor.size(i) > 1) {
      return true;
    }
  }
  return false;
}

at::Tensor cast_expanded(const at::Tensor& tensor, at::ScalarType dtype) {
  at::Tensor compact = tensor.detach();
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.stride(i) == 0 && tensor.size(i) > 1) {
      compact = compact.narrow(i, 0, 1);
    }
  }
  return recorded_cast(tensor, compact.to(dtype).expand(tensor.sizes()).variable_data());
}

at::Tensor cast_uncached(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.layout() == at::kStrided && is_expanded(tensor) ? cast_expanded(tensor, dtype)
                                                                : tensor.to(dtype);
}

}  // namespace

at::Tensor cast_through_cache(const at::Tensor& tensor, at::ScalarType dtype,
                              bool sums_gradients_in_fp32) {
  ThreadCache& cache = thread_cache();
  if (!cacheable(tensor, dtype)) {
    ++cache.statistics.casts;
    return cast_uncached(tensor, dtype);
  }
  const auto use = [&](const at::Tensor& cast) {
    return sums_gradients_in_fp32 ? recorded_cast(tensor, cast.variable_data()) : cast;
  };
  const Key key(tensor.unsafeGetTensorImpl(), dtype);
  const auto found = cache.entries.find(key);
  if (found != cache.entries.end() && found->second.holds(tensor, !sums_gradients_in_fp32)) {
    ++cache.statistics.cache_hits;
    return use(found->second.cast);
  }
  ++cache.statistics.casts;
  const c10::InferenceMode recorded(false);  // turns grad mode on as well
  const tensor::memory::CategoryScope casts(tensor::memory::Category::casts);
  // Uses with a history of their own need numbers without one, which would keep the weight alive.
  at::Tensor result = (sums_gradients_in_fp32 ? tensor.detach() : tensor).to(dtype);
  drop_casts_of_freed_weights(cache);
  cache.entries.insert_or_assign(key, Entry(tensor, result));
  return use(result);
}

CastStatistics cast_statistics() { return thread_cache().statistics; }

void clear_cast_cache() {
  thread_cache().entries.clear();
  thread_cache().sweep_at = kFewEntries;
}

int64_t cast_cache_bytes() {
  int64_t bytes = 0;
  for (const auto& [key, entry] : thread_cache().entries) {
    bytes += static_cast<int64_t>(entry.cast.nbytes());
  }
  return bytes;
}

}  // namespace mantissa::amp
