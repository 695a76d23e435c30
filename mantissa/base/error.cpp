#include "mantissa/base/error.h"

#include <cstring>

namespace mantissa {

// Out of line, so that the type information of each kind lives in one library only.
Error::~Error() = default;
InvalidArgument::~InvalidArgument() = default;
Unsupported::~Unsupported() = default;
IoError::~IoError() = default;
Corruption::~Corruption() = default;

namespace detail {

void assertion_failed(const char* condition, const char* file, int line) {
  const char* slash = std::strrchr(file, '/');
  throw Error(concat("internal error: ", condition, " does not hold (", slash ? slash + 1 : file,
                     ":", line, "); please report it"));
}

}  // namespace detail
}  // namespace mantissa
