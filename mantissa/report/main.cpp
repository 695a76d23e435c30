// mantissa-report: the command `mantissa report` out of the layers without LibTorch.

#include <exception>
#include <iostream>
#include <string>

#include "mantissa/base/error.h"
#include "mantissa/report/command_options.h"

namespace mantissa::report {
namespace {

// As in every command of mantissa.
constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

int fail(const std::string& message, int exit_code) {
  std::cerr << "mantissa-report: " << message.substr(0, message.find('\n')) << "\n";
  return exit_code;
}

int run(int argc, char** argv) {
  CLI::App app("A report of training runs, out of their records.", "mantissa-report");
  app.set_version_flag("--version", "mantissa-report " MANTISSA_VERSION);
  CommandOptions options;
  add_options(app, options);
  try {
    app.parse(argc, argv);
    const CommandResult result = run_command(options, "mantissa-report");
    std::cout << result.text << std::flush;
    for (const std::string& message : result.messages) {
      std::cerr << "mantissa-report: " << message << "\n";
    }
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      return fail(concat(error.what(), "; see mantissa-report --help"), kWrongUsage);
    }
    app.exit(error);  // --help, --version
    std::cout.flush();
  } catch (const InvalidArgument& error) {
    return fail(error.what(), kWrongUsage);
  } catch (const std::bad_alloc&) {
    return fail("out of memory; name fewer runs", kFailed);
  } catch (const std::exception& error) {
    return fail(error.what(), kFailed);
  }
  return std::cout ? kDone : fail("stdout: cannot be written; is the disk full?", kFailed);
}

}  // namespace
}  // namespace mantissa::report

int main(int argc, char** argv) { return mantissa::report::run(argc, argv); }
