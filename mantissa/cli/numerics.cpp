#include <iostream>
#include <memory>

#include "mantissa/cli/command.h"
#include "mantissa/numerics/describe.h"
#include "mantissa/numerics/format.h"

namespace mantissa::cli {
namespace {

struct Options {
  std::string format;
  std::string value;
  bool json = false;
};

void run_numerics(const Options& options) {
  const numerics::Description description =
      numerics::describe(numerics::parse_format(options.format), options.value);
  std::cout << (options.json ? numerics::to_json(description) + "\n"
                             : numerics::to_text(description));
}

}  // namespace

void add_numerics(CLI::App& app, int& /*exit_code*/) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("numerics", "Show a value in a format: bits, error, neighbours");
  command->add_option("FORMAT", options->format, "fp32 tf32 bf16 fp16 fp8_e4m3 fp8_e5m2")
      ->required();
  command->add_option("VALUE", options->value, "0.1, 1e-8, 0x1p-14, inf, nan or bits:0x3dcd")
      ->required();
  command->add_flag("--json", options->json, "one JSON object, the last line of stdout");
  command->callback([options] { run_numerics(*options); });
}

}  // namespace mantissa::cli
