#include "mantissa/tensor/memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "mantissa/base/error.h"
#include "mantissa/base/process_memory.h"
#include "mantissa/tensor/memory_ledger.h"
#include "mantissa/tensor/scope.h"
#include "mantissa/tensor/thread_state.h"

namespace mantissa::tensor::memory {
namespace {

// The system serves smaller tensors without asking for new pages each time; in the arena they would
// lie between large ones that are freed.
constexpr size_t kSmallestInArena = size_t{16} << 10;

// In front of the bytes of each tensor. With it, freeing needs no table of addresses, and the
// pointer that a tensor sees is its own context, as LibTorch's raw_allocate() wants it.
struct alignas(64) Header {
  void* context;              // of the wrapped allocator, or the block in the arena
  c10::DeleterFnPtr deleter;  // of `context`; null for one in the arena
  int64_t size_bytes;
  uint32_t holder;
};
static_assert(sizeof(Header) == 64 && Arena::kAlignment == 64,
              "the alignment of tensors must stay");

constexpr const char* kRemedy = "; use a smaller train.batch, train.microbatch, model or context";

// The peak is a moment in one order of all allocations, so they must have an order: one lock, held
// for a few additions and the arena's book-keeping.
class Memory {
 public:
  // Before the memory is asked for: what is going to be counted.
  void require_room(int64_t size_bytes) {
    if (total_.load(std::memory_order_relaxed) + size_bytes <
        unchecked_from_.load(std::memory_order_relaxed)) {
      return;
    }
    const std::lock_guard lock(mutex_);
    const int64_t total = ledger_.total() + size_bytes;
    int64_t room = room_for_tensors_locked();
    if (total > room && arena_ != nullptr && arena_->release_cached() > 0) {
      room = room_for_tensors_locked();
    }
    MANTISSA_CHECK(total <= room, tensor::memory::OutOfMemory, "memory: ", size_bytes,
                   " bytes asked for, with ", ledger_.total(),
                   " bytes in tensors, and the system can give this process ", room, " for tensors",
                   kRemedy);
    unchecked_from_ = total + kCheckEveryBytes;
  }

  int64_t room() {
    const std::lock_guard lock(mutex_);
    return room_for_tensors_locked();
  }

  // A block for header and tensor, counted; null when the arena does not serve it.
  Arena::Block* allocate(int64_t size_bytes, Category category, uint32_t& holder) {
    const std::lock_guard lock(mutex_);
    Arena::Block* const block = arena_->allocate(size_bytes + static_cast<int64_t>(sizeof(Header)));
    if (block != nullptr) {
      holder = add_locked(size_bytes, category);
    }
    return block;
  }

  uint32_t add(int64_t size_bytes, Category category) {
    const std::lock_guard lock(mutex_);
    return add_locked(size_bytes, category);
  }

  void free(Header& header) {
    const c10::DeleterFnPtr deleter = header.deleter;
    void* const context = header.context;
    {
      const std::lock_guard lock(mutex_);
      ledger_.remove(header.holder, header.size_bytes);
      note(header.holder, -header.size_bytes);
      total_.store(ledger_.total(), std::memory_order_relaxed);
      if (deleter == nullptr) {
        arena_->free(static_cast<Arena::Block*>(context));
      }
    }
    if (deleter != nullptr) {
      deleter(context);
    }
  }

  void move(Header& header, Category category, std::optional<uint32_t> scope = {}) {
    const std::lock_guard lock(mutex_);
    const uint32_t holder =
        Ledger::holder(category, scope.value_or(Ledger::scope_of(header.holder)));
    ledger_.move(header.holder, holder, header.size_bytes);
    note(header.holder, -header.size_bytes);
    note(holder, header.size_bytes);
    header.holder = holder;
  }

  // Calls `read(ledger, arena)`.
  template <typename Read>
  auto locked(Read read) {
    const std::lock_guard lock(mutex_);
    return read(ledger_, arena_.get());
  }

  void choose(Allocator allocator) {
    const std::lock_guard lock(mutex_);
    if (allocator == Allocator::caching && arena_ == nullptr) {
      arena_ = std::make_unique<Arena>(ArenaOptions{.reserve_bytes = addresses_to_reserve()});
    }
    allocator_ = allocator;
  }
  Allocator allocator() const { return allocator_; }
  bool is_caching() const { return allocator() == Allocator::caching; }
  bool is_addresses() const { return allocator() == Allocator::addresses; }

  void begin_journal() {
    const std::lock_guard lock(mutex_);
    MANTISSA_CHECK(!journal_, InvalidArgument, "memory: a second journal; end the first one");
    journal_.emplace();
  }
  void end_journal() {
    const std::lock_guard lock(mutex_);
    journal_.reset();
  }
  std::vector<Change> changes() {
    const std::lock_guard lock(mutex_);
    return *journal_;
  }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  static int64_t addresses_to_reserve() {
    constexpr int64_t kParts = 4;
    const int64_t page = ::sysconf(_SC_PAGESIZE);
    int64_t bytes = kParts * ::sysconf(_SC_PHYS_PAGES) * page;
    rlimit limit{};
    if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      int64_t used_pages = 0;
      std::ifstream("/proc/self/statm") >> used_pages;
      const auto left = static_cast<int64_t>(limit.rlim_cur) - used_pages * page;
      bytes = std::clamp(left / kParts, int64_t{0}, bytes);
    }
    return bytes;
  }

  // With what they have.
  int64_t room_for_tensors_locked() const {
    const auto process = process_memory();
    // Tensors that were not written to yet are not resident, so they may be more than what is.
    return process ? std::min(process->resident_bytes, ledger_.total()) + process->usable_bytes()
                   : std::numeric_limits<int64_t>::max();
  }

  uint32_t add_locked(int64_t size_bytes, Category category) {
    thread_local uint64_t known_changes = 0;
    thread_local uint32_t known_scope = 0;
    if (const uint64_t changes = scope_changes(); changes != known_changes) {
      known_scope = ledger_.scope_id(current_scope());
      known_changes = changes;
    }
    const uint32_t holder = Ledger::holder(category, known_scope);
    ledger_.add(holder, size_bytes);
    note(holder, size_bytes);
    total_.store(ledger_.total(), std::memory_order_relaxed);
    return holder;
  }

  void note(uint32_t holder, int64_t size_bytes) {
    if (journal_) {
      journal_->push_back({Ledger::category_of(holder), size_bytes});
    }
  }

  static constexpr int64_t kCheckEveryBytes = int64_t{64} << 20;

  std::mutex mutex_;
  Ledger ledger_;
  std::optional<std::vector<Change>> journal_;
  std::unique_ptr<Arena> arena_;
  std::atomic<Allocator> allocator_ = Allocator::system;
  std::atomic<int64_t> total_ = 0;  // of the ledger, to be looked at without the lock
  std::atomic<int64_t> unchecked_from_ = kCheckEveryBytes;
};

// Never destroyed: tensors in static objects are freed after everything else.
Memory& memory() {
  static Memory& instance = *new Memory;
  return instance;
}

thread_local Category current_category = Category::other;

const ThreadStatePart part([]() -> EnterAgain {
  return [category = current_category] { return std::make_shared<CategoryScope>(category); };
});

Header* header_of(void* data) { return static_cast<Header*>(data) - 1; }

void release(void* data) {
  if (data != nullptr) {
    memory().free(*header_of(data));
  }
}

class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* wrapped) : wrapped_(wrapped) {}

  c10::DataPtr allocate(size_t size_bytes) override {
    if (size_bytes == 0) {
      return {nullptr, nullptr, &release, at::kCPU};
    }
    const auto size = static_cast<int64_t>(size_bytes);
    if (memory().is_addresses()) {
      return addresses(size_bytes);
    }
    memory().require_room(size);
    if (size_bytes >= kSmallestInArena && memory().is_caching()) {
      uint32_t holder = 0;
      if (Arena::Block* const block = memory().allocate(size, current_category, holder)) {
        return behind(new (Arena::data(block)) Header{block, nullptr, size, holder});
      }
    }
    return counted(from_wrapped(size_bytes), size);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* target, const void* source, size_t size_bytes) const override {
    default_copy_data(target, source, size_bytes);
  }

 private:
  static c10::DataPtr behind(Header* header) {
    void* data = header + 1;
    return {data, data, &release, at::kCPU};
  }

  static c10::DataPtr counted(c10::DataPtr inner, int64_t size) {
    const c10::DeleterFnPtr deleter = inner.get_deleter();
    void* begin = inner.get();
    return behind(new (begin) Header{inner.release_context(), deleter, size,
                                     memory().add(size, current_category)});
  }

  // Zeros, so that what nothing was computed into is finite and the same each time.
  c10::DataPtr addresses(size_t size_bytes) {
    const auto size = static_cast<int64_t>(size_bytes);
    if (size_bytes < kSmallestInArena) {
      c10::DataPtr data = counted(from_wrapped(size_bytes), size);
      std::memset(data.get(), 0, size_bytes);
      return data;
    }
    const size_t whole = size_bytes + sizeof(Pages);
    void* const begin = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MANTISSA_CHECK(begin != MAP_FAILED, tensor::memory::OutOfMemory, "memory: the system has no ",
                   whole, " addresses left; lift the limit on them (ulimit -v)", kRemedy);
    ::madvise(begin, whole, MADV_NOHUGEPAGE);  // of a huge page the first touch would take it whole
    auto* const pages = new (begin) Pages{whole, {}};
    return behind(new (&pages->header)
                      Header{pages, &unmap, size, memory().add(size, current_category)});
  }

  struct Pages {
    alignas(64) size_t bytes;
    Header header;
  };

  static void unmap(void* context) { ::munmap(context, static_cast<Pages*>(context)->bytes); }

  c10::DataPtr from_wrapped(size_t size_bytes) {
    try {
      return wrapped_->allocate(size_bytes + sizeof(Header));
    } catch (const c10::Error&) {
      throw OutOfMemory(
          concat("memory: the system refused ", size_bytes, " bytes, with ",
                 memory().locked([](Ledger& ledger, Arena*) { return ledger.total(); }),
                 " bytes in tensors", kRemedy));
    }
  }

  c10::Allocator* wrapped_;
};

std::atomic<bool> installed = false;

void require_counting() {
  MANTISSA_CHECK(is_counting(), InvalidArgument,
                 "memory: nothing is counted; call install_counting_allocator() before the first "
                 "tensor");
}

void move_storage(const at::Tensor& tensor, Category category, std::optional<uint32_t> scope) {
  if (!tensor.defined() || !tensor.has_storage()) {
    return;
  }
  const c10::DataPtr& data = tensor.storage().data_ptr();
  if (data.get_deleter() == &release && data.get_context() != nullptr) {
    memory().move(*header_of(data.get_context()), category, scope);
  }
}

class GradientTag : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientTag(uint32_t scope, std::unique_ptr<PostAccumulateGradHook> first)
      : scope_(scope), first_(std::move(first)) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    if (first_) {
      (*first_)(parameter);
    }
    move_storage(parameter.grad(), Category::gradients, scope_);
  }

 private:
  uint32_t scope_;
  std::unique_ptr<PostAccumulateGradHook> first_;
};

}  // namespace

OutOfMemory::~OutOfMemory() = default;

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
    case Category::casts:
      return "casts";
    case Category::other:
      return "other";
  }
  MANTISSA_ASSERT(false);
}

std::string_view name_of(Allocator allocator) {
  switch (allocator) {
    case Allocator::system:
      return "system";
    case Allocator::caching:
      return "caching";
    case Allocator::addresses:
      return "addresses";
  }
  MANTISSA_ASSERT(false);
}

Allocator parse_allocator(std::string_view name) {
  for (const Allocator allocator : {Allocator::system, Allocator::caching}) {
    if (name == name_of(allocator)) {
      return allocator;
    }
  }
  throw InvalidArgument(concat("memory: unknown allocator \"", name, "\"; valid: caching system"));
}

void install_counting_allocator() {
  if (!installed.exchange(true)) {
    // The highest priority, so that no allocator which another library set can refuse it.
    c10::SetCPUAllocator(new CountingAllocator(c10::GetCPUAllocator()), UINT8_MAX);
    // A child has one thread: a lock that another one held would stay so.
    ::pthread_atfork([] { memory().lock(); }, [] { memory().unlock(); }, [] { memory().unlock(); });
  }
}

bool is_counting() { return installed; }

int64_t room_for_tensors() {
  require_counting();
  return memory().room();
}

CategoryScope::CategoryScope(Category category)
    : outer_(std::exchange(current_category, category)) {}

CategoryScope::~CategoryScope() { current_category = outer_; }

void retag(const at::Tensor& tensor, Category category) {
  move_storage(tensor, category, std::nullopt);
}

void tag_gradients(const ParameterList& parameters) {
  for (const Parameter& parameter : parameters) {
    MANTISSA_CHECK(parameter.value.is_leaf() && parameter.value.requires_grad(), InvalidArgument,
                   "memory: parameter \"", parameter.name,
                   "\" gets no gradient; pass leaves that require one");
    std::unique_ptr<torch::autograd::PostAccumulateGradHook> first =
        std::move(torch::autograd::impl::post_acc_grad_hooks(parameter.value));
    const size_t dot = parameter.name.rfind('.');
    const std::string module = dot == std::string::npos ? "" : parameter.name.substr(0, dot);
    const uint32_t scope =
        memory().locked([&](Ledger& ledger, Arena*) { return ledger.scope_id(module); });
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameter.value, std::make_unique<GradientTag>(scope, std::move(first)));
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
  return memory().locked([](Ledger& ledger, Arena*) { return ledger.live(); });
}

Peak peak() {
  require_counting();
  return memory().locked([](Ledger& ledger, Arena*) { return ledger.peak(); });
}

Bytes peak_bytes() { return peak().bytes; }

Journal::Journal() {
  require_counting();
  memory().begin_journal();
}

Journal::~Journal() { memory().end_journal(); }

std::vector<Change> Journal::changes() const { return memory().changes(); }

void reset_peak() {
  require_counting();
  memory().locked([](Ledger& ledger, Arena*) { ledger.reset_peak(); });
}

void set_allocator(Allocator allocator) {
  require_counting();
  memory().choose(allocator);
}

Allocator current_allocator() { return memory().allocator(); }

int64_t release_cached() {
  return memory().locked(
      [](Ledger&, Arena* arena) { return arena == nullptr ? 0 : arena->release_cached(); });
}

ArenaStatistics caching_statistics() {
  return memory().locked([](Ledger&, Arena* arena) {
    return arena == nullptr ? ArenaStatistics{} : arena->statistics();
  });
}

}  // namespace mantissa::tensor::memory
