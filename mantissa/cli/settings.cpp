#include "mantissa/cli/settings.h"

namespace mantissa::cli {

std::vector<train::Setting> settings_of(
    const std::vector<std::string>& texts,
    std::initializer_list<std::pair<const char*, std::optional<std::string>>> short_options) {
  std::vector<train::Setting> settings;
  settings.reserve(texts.size() + short_options.size());
  for (const std::string& text : texts) {
    settings.push_back(train::parse_setting(text));
  }
  for (const auto& [key, value] : short_options) {
    if (value) {
      settings.push_back({key, *value});
    }
  }
  return settings;
}

void add_memory_option(CLI::App& command, std::optional<std::string>& memory) {
  command.add_option("--memory", memory,
                     "bytes that tensors may take, such as 2GB, for --microbatch auto (default: "
                     "what the system can give); short for --set train.memory=...");
}

}  // namespace mantissa::cli
