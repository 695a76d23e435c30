#include "mantissa/amp/cast_cache.h"

#include <unordered_map>
#include <utility>

#include <c10/core/InferenceMode.h>
#include <c10/util/hash.h>

#include "mantissa/amp/autocast.h"
#include "mantissa/tensor/dtype.h"

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

  bool holds(const at::Tensor& tensor) const {
    return tensor._version() == version &&
           tensor.storage().unsafeGetStorageImpl() == storage._unsafe_get_target() &&
           tensor.storage_offset() == offset && tensor.sizes() == sizes &&
           tensor.strides() == strides;
  }
};

struct ThreadCache {
  std::unordered_map<Key, Entry, KeyHash> entries;
  CastStatistics statistics;
};

ThreadCache& thread_cache() {
  thread_local ThreadCache cache;
  return cache;
}

bool cacheable(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor::is_16bit(dtype) && tensor.scalar_type() == at::kFloat && tensor.requires_grad() &&
         tensor.is_leaf() && !tensor.is_view() && !tensor.is_inference() && tensor.has_storage();
}

}  // namespace

at::Tensor cast_through_cache(const at::Tensor& tensor, at::ScalarType dtype) {
  ThreadCache& cache = thread_cache();
  if (!cacheable(tensor, dtype)) {
    ++cache.statistics.casts;
    return tensor.to(dtype);
  }
  const Key key(tensor.unsafeGetTensorImpl(), dtype);
  const auto found = cache.entries.find(key);
  if (found != cache.entries.end() && found->second.holds(tensor)) {
    ++cache.statistics.cache_hits;
    return found->second.cast;
  }
  ++cache.statistics.casts;
  const c10::InferenceMode recorded(false);  // turns grad mode on as well
  at::Tensor result = tensor.to(dtype);
  cache.entries.insert_or_assign(key, Entry(tensor, result));
  return result;
}

CastStatistics cast_statistics() { return thread_cache().statistics; }

void clear_cast_cache() { thread_cache().entries.clear(); }

int64_t cast_cache_bytes() {
  int64_t bytes = 0;
  for (const auto& [key, entry] : thread_cache().entries) {
    bytes += static_cast<int64_t>(entry.cast.nbytes());
  }
  return bytes;
}

}  // namespace mantissa::amp
