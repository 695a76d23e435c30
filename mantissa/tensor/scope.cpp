#include "mantissa/tensor/scope.h"

namespace mantissa::tensor {
namespace {

std::string& path() {
  thread_local std::string path;
  return path;
}

thread_local uint64_t changes = 0;

}  // namespace

Scope::Scope(const std::string& name) : outer_length_(path().size()) {
  if (!path().empty()) {
    path() += '.';
  }
  path() += name;
  ++changes;
}

Scope::~Scope() {
  path().resize(outer_length_);
  ++changes;
}

void set_scope(const std::string& text) {
  path() = text;
  ++changes;
}

const std::string& current_scope() { return path(); }

uint64_t scope_changes() { return changes; }

}  // namespace mantissa::tensor
