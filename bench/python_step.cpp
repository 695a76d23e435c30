#include "bench/python_step.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include <ATen/Parallel.h>

#include "bench/peer_process.h"
#include "mantissa/base/error.h"
#include "mantissa/tensor/safetensors.h"

namespace mantissa::bench {
namespace {

class InputFile {
 public:
  explicit InputFile(const PythonInput& input) {
    std::filesystem::remove(path_);
    tensor::write_safetensors(path_, input.tensors, input.settings);
  }
  ~InputFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::string path() const { return path_; }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / concat("mantissa-bench-", getpid(), ".safetensors");
};

}  // namespace

Step python_step(const std::string& python, const std::string& script, const PythonInput& input,
                 const std::string& variant) {
  const auto file = std::make_shared<InputFile>(input);
  const auto peer = std::make_shared<PeerProcess>(
      std::vector<std::string>{python, concat(MANTISSA_SOURCE_DIR "/bench/peer/", script),
                               file->path(), variant, std::to_string(at::get_num_threads())});
  return [file, peer] { return std::stod(peer->ask("step")); };
}

}  // namespace mantissa::bench
