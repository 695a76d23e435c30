#pragma once

#include <cstdint>
#include <string>

#include "mantissa/base/api.h"

namespace mantissa::tensor {

/// Names the module that runs, for policy overrides, monitor and messages. Scopes nest, per
/// thread: inside `Scope a("blocks.0"); Scope b("attention");` the path is `blocks.0.attention`.
class MANTISSA_API Scope {
 public:
  explicit Scope(const std::string& name);
  ~Scope();

  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  size_t outer_length_;
};

/// Makes `path` that of this thread, whatever its scopes are: for code that goes on with what
/// another moment or thread began. Scopes that are open must be put back before they end.
MANTISSA_API void set_scope(const std::string& path);

/// The path of this thread's scopes; empty outside of any.
MANTISSA_API const std::string& current_scope();

/// Another number after each scope that this thread has entered or left: what depends on the path
/// needs to be looked up again only when this has changed.
MANTISSA_API uint64_t scope_changes();

}  // namespace mantissa::tensor
