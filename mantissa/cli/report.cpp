#include <iostream>
#include <memory>

#include "mantissa/cli/command.h"
#include "mantissa/report/command_options.h"

namespace mantissa::cli {

void add_report(CLI::App& app, int& /*exit_code*/) {
  auto options = std::make_shared<report::CommandOptions>();
  CLI::App* command = app.add_subcommand("report", "Tables and a page of curves out of runs");
  report::add_options(*command, *options);
  command->callback([options] {
    const report::CommandResult result = report::run_command(*options, "mantissa report");
    std::cout << result.text;
    for (const std::string& message : result.messages) {
      std::cerr << "mantissa: " << message << "\n";
    }
  });
}

}  // namespace mantissa::cli
