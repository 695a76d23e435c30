#include "mantissa/cli/checkpoint_choice.h"

#include <iostream>

#include "mantissa/base/error.h"

namespace mantissa::cli {
namespace {

checkpoint::Loaded read(const std::filesystem::path& folder, const std::string& name,
                        const char* command) {
  if (name == "best") {
    return checkpoint::read_best(folder);
  }
  if (name == "latest") {
    return checkpoint::read_latest(folder);
  }
  MANTISSA_CHECK(!name.empty() && name != "." && name != ".." &&
                     std::filesystem::path(name).filename() == name,
                 InvalidArgument, command, ": --checkpoint \"", name,
                 "\" is no name within the run; give best, latest or step-N");
  return checkpoint::read(folder / name);
}

}  // namespace

checkpoint::Loaded read_checkpoint(const std::filesystem::path& run, const std::string& name,
                                   const char* command) {
  checkpoint::Loaded loaded = read(run / "checkpoints", name, command);
  for (const std::string& message : loaded.messages) {
    std::cerr << "mantissa: warning: " << message << "\n";
  }
  return loaded;
}

}  // namespace mantissa::cli
