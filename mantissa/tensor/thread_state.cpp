#include "mantissa/tensor/thread_state.h"

#include <array>

#include <c10/core/DefaultDtype.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include "mantissa/tensor/scope.h"

// Declared here, because <ATen/autocast_mode.h> includes all of ATen.
namespace at::autocast {
TORCH_API c10::ScalarType get_autocast_dtype(c10::DeviceType device_type);
TORCH_API void set_autocast_dtype(c10::DeviceType device_type, c10::ScalarType dtype);
TORCH_API bool is_autocast_cache_enabled();
TORCH_API void set_autocast_cache_enabled(bool enabled);
}  // namespace at::autocast

namespace mantissa::tensor {
namespace {

// Whether autocast is on is a matter of dispatch keys, its dtypes are not.
constexpr std::array kAutocastDevices = {c10::DeviceType::CPU, c10::DeviceType::CUDA,
                                         c10::DeviceType::XPU, c10::DeviceType::MPS,
                                         c10::DeviceType::PrivateUse1};

std::vector<c10::ScalarType> autocast_dtypes() {
  std::vector<c10::ScalarType> dtypes;
  dtypes.reserve(kAutocastDevices.size());
  for (const c10::DeviceType device : kAutocastDevices) {
    dtypes.push_back(at::autocast::get_autocast_dtype(device));
  }
  return dtypes;
}

void set_autocast_dtypes(const std::vector<c10::ScalarType>& dtypes) {
  for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
    at::autocast::set_autocast_dtype(kAutocastDevices[i], dtypes[i]);
  }
}

// Setting it writes a global, which other threads may read.
void set_default_dtype(c10::ScalarType dtype) {
  if (dtype != c10::get_default_dtype_as_scalartype()) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
  }
}

std::vector<EnterAgain (*)()>& captures() {
  static std::vector<EnterAgain (*)()> list;
  return list;
}

}  // namespace

ThreadStatePart::ThreadStatePart(EnterAgain (*capture)()) { captures().push_back(capture); }

ThreadState::ThreadState()
    : keys_(c10::impl::tls_local_dispatch_key_set()),
      autograd_(c10::AutogradState::get_tls_state()),
      autocast_dtypes_(autocast_dtypes()),
      default_dtype_(c10::get_default_dtype_as_scalartype()),
      scope_(current_scope()) {
  for (const auto& capture : captures()) {
    parts_.push_back(capture());
  }
}

struct RestoreThreadState::Basis {
  explicit Basis(const ThreadState& state) : keys(state.keys_) {
    c10::AutogradState::set_tls_state(state.autograd_);
    set_autocast_dtypes(state.autocast_dtypes_);
    at::autocast::set_autocast_cache_enabled(false);
    set_default_dtype(state.default_dtype_);
    set_scope(state.scope_);
  }
  ~Basis() {
    c10::AutogradState::set_tls_state(autograd);
    set_autocast_dtypes(dtypes);
    at::autocast::set_autocast_cache_enabled(keeps_casts);
    set_default_dtype(default_dtype);
    set_scope(scope);
  }
  Basis(const Basis&) = delete;
  Basis& operator=(const Basis&) = delete;

  // What was before.
  c10::AutogradState autograd = c10::AutogradState::get_tls_state();
  std::vector<c10::ScalarType> dtypes = autocast_dtypes();
  bool keeps_casts = at::autocast::is_autocast_cache_enabled();
  c10::ScalarType default_dtype = c10::get_default_dtype_as_scalartype();
  std::string scope = current_scope();
  c10::impl::ForceDispatchKeyGuard keys;
};

RestoreThreadState::RestoreThreadState(const ThreadState& state)
    : basis_(std::make_unique<Basis>(state)) {
  for (const EnterAgain& enter : state.parts_) {
    parts_.push_back(enter());
  }
}

RestoreThreadState::~RestoreThreadState() {
  while (!parts_.empty()) {
    parts_.pop_back();  // the last first
  }
}

}  // namespace mantissa::tensor
