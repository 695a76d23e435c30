#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/record_function.h>

namespace mantissa::tensor {

/// The operations called on this thread, in a test, by which a host learns the value of a tensor
/// and so waits for its device. On a CPU they are called all the same.
class HostReads {
 public:
  HostReads() {
    names().clear();
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(note).scopes({at::RecordScope::FUNCTION}));
  }
  ~HostReads() { at::removeCallback(handle_); }

  HostReads(const HostReads&) = delete;
  HostReads& operator=(const HostReads&) = delete;

  /// In the order of the calls.
  static std::vector<std::string>& names() {
    static thread_local std::vector<std::string> names;
    return names;
  }

 private:
  // The first is what item(), is_nonzero() and bool conversions come to. The others find out how
  // large their result is; `_coalesce` sorts indices and counts the distinct ones.
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    static const std::set<std::string> kReads = {
        "aten::_local_scalar_dense", "aten::equal",      "aten::nonzero",
        "aten::masked_select",       "aten::_unique2",   "aten::_coalesce",
        "aten::repeat_interleave",   "aten::unique_dim", "aten::unique_consecutive"};
    if (kReads.count(function.name()) != 0) {
      names().emplace_back(function.name());
    }
    return nullptr;
  }

  at::CallbackHandle handle_;
};

}  // namespace mantissa::tensor
