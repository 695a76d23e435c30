#include "mantissa/checkpoint/checkpoint.h"

#include "mantissa/base/error.h"

namespace mantissa::checkpoint {

std::vector<std::string> differences(const Environment& saved, const Environment& current) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : saved) {
    const auto found = current.find(name);
    if (found == current.end()) {
      lines.push_back(concat(name, " was ", value, " when the checkpoint was saved, now unknown"));
    } else if (found->second != value) {
      lines.push_back(
          concat(name, " was ", value, " when the checkpoint was saved, is ", found->second));
    }
  }
  for (const auto& [name, value] : current) {
    if (!saved.contains(name)) {
      lines.push_back(concat(name, " was unknown when the checkpoint was saved, is ", value));
    }
  }
  return lines;
}

}  // namespace mantissa::checkpoint
