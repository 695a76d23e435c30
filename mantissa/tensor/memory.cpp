#include "mantissa/tensor/memory.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <utility>

#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "mantissa/base/error.h"
#include "mantissa/base/process_memory.h"

namespace mantissa::tensor::memory {
namespace {

// In front of the bytes of each tensor. With it, freeing needs no table of addresses, and the
// pointer that a tensor sees is its own context, as LibTorch's raw_allocate() wants it.
struct alignas(64) Header {
  void* context;  // with `deleter`: how the wrapped allocator frees
  c10::DeleterFnPtr deleter;
  int64_t size_bytes;
  Category category;
};
static_assert(sizeof(Header) == 64, "the alignment of tensors must stay");

// The peak is a moment in one order of all allocations, so they must have an order: one lock, held
// for a few additions, next to an allocation that costs more.
class Ledger {
 public:
  // Before the memory is asked for: what add() is going to count.
  void require_room(int64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    if (total_ + size_bytes < unchecked_from_) {
      return;
    }
    if (const auto process = process_memory()) {
      // Tensors that were not written to yet are not resident, so they may be more than what is.
      const int64_t limit = std::min(process->resident_bytes, total_) + process->usable_bytes();
      MANTISSA_CHECK(total_ + size_bytes <= limit, Error, "memory: ", size_bytes,
                     " bytes asked for, with ", total_, " bytes in tensors, and the system can ",
                     "give this process ", limit,
                     " for tensors; use a smaller train.batch, train.microbatch, model or context");
    }
    unchecked_from_ = total_ + size_bytes + kCheckEveryBytes;
  }

  void add(Category category, int64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    live_.by_category[static_cast<size_t>(category)] += size_bytes;
    total_ += size_bytes;
    note_peak();
  }

  void remove(const Header& header) {
    const std::lock_guard lock(mutex_);
    live_.by_category[static_cast<size_t>(header.category)] -= header.size_bytes;
    total_ -= header.size_bytes;
  }

  void move(Header& header, Category category) {
    const std::lock_guard lock(mutex_);
    live_.by_category[static_cast<size_t>(header.category)] -= header.size_bytes;
    live_.by_category[static_cast<size_t>(category)] += header.size_bytes;
    header.category = category;
    note_peak();
  }

  Bytes live() {
    const std::lock_guard lock(mutex_);
    return live_;
  }

  Bytes peak() {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    peak_ = live_;
    peak_total_ = total_;
  }

 private:
  void note_peak() {
    if (total_ >= peak_total_) {
      peak_ = live_;
      peak_total_ = total_;
    }
  }

  static constexpr int64_t kCheckEveryBytes = int64_t{64} << 20;

  std::mutex mutex_;
  int64_t unchecked_from_ = kCheckEveryBytes;
  Bytes live_;
  Bytes peak_;
  int64_t total_ = 0;
  int64_t peak_total_ = 0;
};

// Never destroyed: tensors in static objects are freed after everything else.
Ledger& ledger() {
  static Ledger& instance = *new Ledger;
  return instance;
}

thread_local Category current_category = Category::other;

Header* header_of(void* data) { return static_cast<Header*>(data) - 1; }

void release(void* data) {
  if (data != nullptr) {
    Header* header = header_of(data);
    ledger().remove(*header);
    header->deleter(header->context);
  }
}

class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* wrapped) : wrapped_(wrapped) {}

  c10::DataPtr allocate(size_t size_bytes) override {
    if (size_bytes == 0) {
      return {nullptr, nullptr, &release, at::kCPU};
    }
    ledger().require_room(static_cast<int64_t>(size_bytes));
    c10::DataPtr inner = wrapped_->allocate(size_bytes + sizeof(Header));
    const c10::DeleterFnPtr deleter = inner.get_deleter();
    void* begin = inner.get();
    auto* header = new (begin) Header{inner.release_context(), deleter,
                                      static_cast<int64_t>(size_bytes), current_category};
    ledger().add(header->category, header->size_bytes);
    void* data = header + 1;
    return {data, data, &release, at::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* target, const void* source, size_t size_bytes) const override {
    default_copy_data(target, source, size_bytes);
  }

 private:
  c10::Allocator* wrapped_;
};

std::atomic<bool> installed = false;

void require_counting() {
  MANTISSA_CHECK(is_counting(), InvalidArgument,
                 "memory: nothing is counted; call install_counting_allocator() before the first "
                 "tensor");
}

class GradientTag : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientTag(std::unique_ptr<PostAccumulateGradHook> first) : first_(std::move(first)) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    if (first_) {
      (*first_)(parameter);
    }
    retag(parameter.grad(), Category::gradients);
  }

 private:
  std::unique_ptr<PostAccumulateGradHook> first_;
};

}  // namespace

std::string_view name_of(Category category) {
  switch (category) {
    case Category::weights:
      return "weights";
    case Category::gradients:
      return "gradients";
    case Category::optimizer:
      return "optimizer";
    case Category::activations:
      return "activations";
    case Category::other:
      return "other";
  }
  MANTISSA_ASSERT(false);
}

void install_counting_allocator() {
  if (!installed.exchange(true)) {
    // The highest priority, so that no allocator which another library set can refuse it.
    c10::SetCPUAllocator(new CountingAllocator(c10::GetCPUAllocator()), UINT8_MAX);
  }
}

bool is_counting() { return installed; }

CategoryScope::CategoryScope(Category category)
    : outer_(std::exchange(current_category, category)) {}

CategoryScope::~CategoryScope() { current_category = outer_; }

void retag(const at::Tensor& tensor, Category category) {
  if (!tensor.defined() || !tensor.has_storage()) {
    return;
  }
  const c10::DataPtr& data = tensor.storage().data_ptr();
  if (data.get_deleter() == &release && data.get_context() != nullptr) {
    ledger().move(*header_of(data.get_context()), category);
  }
}

void tag_gradients(const ParameterList& parameters) {
  for (const Parameter& parameter : parameters) {
    MANTISSA_CHECK(parameter.value.is_leaf() && parameter.value.requires_grad(), InvalidArgument,
                   "memory: parameter \"", parameter.name,
                   "\" gets no gradient; pass leaves that require one");
    std::unique_ptr<torch::autograd::PostAccumulateGradHook> first =
        std::move(torch::autograd::impl::post_acc_grad_hooks(parameter.value));
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.value,
                                                   std::make_unique<GradientTag>(std::move(first)));
  }
}

int64_t Bytes::total() const {
  return std::accumulate(by_category.begin(), by_category.end(), int64_t{0});
}

std::map<std::string, int64_t> Bytes::by_name() const {
  std::map<std::string, int64_t> result;
  for (const Category category : kCategories) {
    result[std::string(name_of(category))] = of(category);
  }
  return result;
}

Bytes live_bytes() {
  require_counting();
  return ledger().live();
}

Bytes peak_bytes() {
  require_counting();
  return ledger().peak();
}

void reset_peak() {
  require_counting();
  ledger().reset_peak();
}

}  // namespace mantissa::tensor::memory
