#pragma once

#include <exception>
#include <string>

namespace mantissa {

// For tests: the message of what `call` throws, with the kind checked.
template <typename Kind, typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another kind: ") + error.what();
  }
  return "nothing thrown";
}

}  // namespace mantissa
