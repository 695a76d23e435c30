#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include "mantissa/base/api.h"

namespace mantissa {

/// What the library throws. The message is one line:
/// `<where>: <what was found, with the value>; <what to do or the valid values>`.
/// The kind says what the reader can do about it.
class MANTISSA_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~Error() override;
};

/// Change the call, the option or the file that was given.
class MANTISSA_API InvalidArgument : public Error {
 public:
  using Error::Error;
  ~InvalidArgument() override;
};

/// Change the build or the device.
class MANTISSA_API Unsupported : public Error {
 public:
  using Error::Error;
  ~Unsupported() override;
};

/// The operating system said no.
class MANTISSA_API IoError : public Error {
 public:
  using Error::Error;
  ~IoError() override;
};

/// The bytes of a file are wrong.
class MANTISSA_API Corruption : public Error {
 public:
  using Error::Error;
  ~Corruption() override;
};

/// Joins its arguments as `<<` writes them.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

namespace detail {
[[noreturn]] MANTISSA_API void assertion_failed(const char* condition, const char* file, int line);
}  // namespace detail

}  // namespace mantissa

/// Validates at the border: throws `Kind` with the joined parts as its message.
#define MANTISSA_CHECK(condition, Kind, ...)                   \
  do {                                                         \
    if (!(condition)) {                                        \
      throw ::mantissa::Kind(::mantissa::concat(__VA_ARGS__)); \
    }                                                          \
  } while (false)

/// A broken invariant of our own, checked in every build.
#define MANTISSA_ASSERT(condition)                                          \
  do {                                                                      \
    if (!(condition)) {                                                     \
      ::mantissa::detail::assertion_failed(#condition, __FILE__, __LINE__); \
    }                                                                       \
  } while (false)
