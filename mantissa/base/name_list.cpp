#include "mantissa/base/name_list.h"

#include <algorithm>

#include "mantissa/base/error.h"

namespace mantissa {

std::vector<std::string> parse_names(std::string_view where, const std::string& text) {
  return parse_names(where, std::vector<std::string>{text});
}

std::vector<std::string> parse_names(std::string_view where,
                                     const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  for (const std::string& text : texts) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      const std::string name = text.substr(begin, end - begin);
      MANTISSA_CHECK(!name.empty(), InvalidArgument, where, ": \"", text,
                     "\" has an empty name; write one comma between two names");
      MANTISSA_CHECK(std::find(names.begin(), names.end(), name) == names.end(), InvalidArgument,
                     where, ": \"", name, "\" is named twice; name each once");
      names.push_back(name);
      begin = end + 1;
    }
  }
  return names;
}

}  // namespace mantissa
