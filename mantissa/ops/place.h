#pragma once

#include <cstddef>
#include <ostream>
#include <string_view>

namespace mantissa::ops {

/// Where a message begins: `operation: kind number: part`. Text only once there is a message:
/// checks of thousands of small parameters are most of their step otherwise.
class Place {
 public:
  Place(const char* operation) : operation_(operation) {}
  Place(const char* operation, const char* kind, size_t number)
      : operation_(operation), kind_(kind), number_(number) {}

  Place part(const char* name) const {
    Place result = *this;
    result.part_ = name;
    return result;
  }

  friend std::ostream& operator<<(std::ostream& out, const Place& place) {
    out << place.operation_;
    if (!place.kind_.empty()) {
      out << ": " << place.kind_ << ' ' << place.number_;
    }
    if (!place.part_.empty()) {
      out << ": " << place.part_;
    }
    return out;
  }

 private:
  std::string_view operation_;
  std::string_view kind_;
  size_t number_ = 0;
  std::string_view part_;
};

}  // namespace mantissa::ops
