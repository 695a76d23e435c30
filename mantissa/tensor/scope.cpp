#include "mantissa/tensor/scope.h"

namespace mantissa::tensor {
namespace {

std::string& path() {
  thread_local std::string path;
  return path;
}

}  // namespace

Scope::Scope(const std::string& name) : outer_length_(path().size()) {
  if (!path().empty()) {
    path() += '.';
  }
  path() += name;
}

Scope::~Scope() { path().resize(outer_length_); }

const std::string& current_scope() { return path(); }

}  // namespace mantissa::tensor
