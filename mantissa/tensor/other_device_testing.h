#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <sys/mman.h>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "mantissa/base/error.h"

/// A device that is none of LibTorch's, for tests: `privateuseone`, whose operations all run on the
/// CPU, in memory that the host may not touch but within them. A kernel for CPUs that were called
/// on its tensors would end the program.
namespace mantissa::tensor::other_device {

inline const at::Device kDevice(at::kPrivateUse1, 0);

/// Memory without access, but where an `Access` lives.
class Memory {
 public:
  static Memory& instance() {
    static Memory memory;  // leaked by the system: tensors may outlive every static object
    return memory;
  }

  void* allocate(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t size = rounded(bytes);
    std::vector<std::byte*>& free = free_[size];
    if (!free.empty()) {
      std::byte* result = free.back();
      free.pop_back();
      return result;
    }
    MANTISSA_CHECK(used_ + size <= kBytes, Error, "other device: out of memory");
    used_ += size;
    return begin_ + (used_ - size);
  }

  void release(void* pointer, size_t bytes) {
    const std::lock_guard lock(mutex_);
    free_[rounded(bytes)].push_back(static_cast<std::byte*>(pointer));
  }

  void open() {
    const std::lock_guard lock(mutex_);
    if (depth_++ == 0) {
      protect(PROT_READ | PROT_WRITE);
    }
  }

  void close() {
    const std::lock_guard lock(mutex_);
    if (--depth_ == 0) {
      protect(PROT_NONE);
    }
  }

 private:
  static constexpr size_t kBytes = size_t{1} << 28;

  Memory()
      : begin_(static_cast<std::byte*>(::mmap(
            nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    MANTISSA_CHECK(begin_ != MAP_FAILED, Error, "other device: no memory");
  }

  static size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

  void protect(int access) {
    MANTISSA_CHECK(::mprotect(begin_, kBytes, access) == 0, Error, "other device: mprotect");
  }

  std::mutex mutex_;
  std::byte* begin_;
  size_t used_ = 0;
  int depth_ = 0;
  std::map<size_t, std::vector<std::byte*>> free_;
};

/// While it lives, the host may touch the memory of the device.
class Access {
 public:
  Access() { Memory::instance().open(); }
  ~Access() { Memory::instance().close(); }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
};

/// What the host asked of the device, from any thread.
struct Calls {
  std::mutex mutex;
  std::vector<std::string> waits;  // by which it learns a value or a size and so waits
  std::set<std::string> seen;      // all operations but views and copies

  static Calls& instance() {
    static Calls calls;
    return calls;
  }

  void reset() {
    const std::lock_guard lock(mutex);
    waits.clear();
    seen.clear();
  }

  void note(const std::string& name, bool is_wait) {
    const std::lock_guard lock(mutex);
    seen.insert(name);
    if (is_wait) {
      waits.push_back(name);
    }
  }
};

namespace internal {

inline thread_local bool in_fallback = false;

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    struct Block {
      void* pointer;
      size_t bytes;
    };
    auto* block = new Block{Memory::instance().allocate(bytes), bytes};
    return {block->pointer, block,
            [](void* context) {
              const auto* own = static_cast<Block*>(context);
              Memory::instance().release(own->pointer, own->bytes);
              delete own;
            },
            kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const Access access;
    default_copy_data(to, from, bytes);
  }
};

inline DeviceAllocator& allocator() {
  static DeviceAllocator instance;
  return instance;
}

struct DeviceGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return at::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream getNewStream(c10::Device, int) const override { return getStream(kDevice); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    *event = nullptr;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
};

struct DeviceHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

inline at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                        std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

inline at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                                std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                                std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator(), kKeys,
                                           c10::dtype_or_default(dtype));
}

// The same memory as a tensor of the CPU.
inline at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) {
    return tensor;
  }
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

inline at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset);
  if (!in_fallback && to.is_cpu() && !non_blocking) {
    Calls::instance().note("copy to the host", true);
  }
  const Access access;
  on_host(to).copy_(on_host(from));
  return to;
}

inline at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

inline at::Scalar local_scalar(const at::Tensor& tensor) {
  Calls::instance().note("_local_scalar_dense", true);
  const Access access;
  return on_host(tensor).item();
}

inline const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                                std::optional<at::MemoryFormat>) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  const size_t bytes = impl->numel() * self.element_size();
  if (bytes > self.storage().nbytes()) {
    c10::StorageImpl* storage = self.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(allocator().allocate(bytes));
    storage->set_nbytes(bytes);
  }
  return self;
}

inline void fallback(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  static const std::set<std::string> kSized = {"aten::equal",         "aten::nonzero",
                                               "aten::masked_select", "aten::_unique2",
                                               "aten::_coalesce",     "aten::repeat_interleave"};
  const std::string& name = operation.schema().name();
  Calls::instance().note(name, kSized.count(name) != 0);
  const bool outer = std::exchange(in_fallback, true);
  at::native::cpu_fallback(operation, stack, /*error_on_views=*/true);
  in_fallback = outer;
}

}  // namespace internal

/// Once a program, before its tensors. Nothing else may take PrivateUse1 there.
inline void register_other_device() {
  static const bool done = [] {
    using namespace internal;  // NOLINT(google-build-using-namespace)
    static DeviceGuard guard;
    static DeviceHooks hooks;
    at::RegisterPrivateUse1HooksInterface(&hooks);
    c10::impl::device_guard_impl_registry[static_cast<size_t>(at::kPrivateUse1)].store(&guard);
    c10::SetAllocator(at::kPrivateUse1, &allocator());
    c10::register_privateuse1_backend("other");
    static torch::Library others(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__,
                                 __LINE__);
    others.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
    static torch::Library own(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                              __LINE__);
    own.impl("empty.memory_format", TORCH_FN(empty));
    own.impl("empty_strided", TORCH_FN(empty_strided));
    own.impl("_copy_from", TORCH_FN(copy_from));
    own.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
    own.impl("_local_scalar_dense", TORCH_FN(local_scalar));
    own.impl("resize_", TORCH_FN(resize));
    own.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
    own.impl("view", TORCH_FN(at::native::view));
    own.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
    return true;
  }();
  (void)done;
}

}  // namespace mantissa::tensor::other_device
