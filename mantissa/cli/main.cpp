#include <exception>
#include <iostream>
#include <new>
#include <string>

#include <c10/util/Exception.h>

#include "mantissa/base/error.h"
#include "mantissa/cli/command.h"

namespace mantissa::cli {
namespace {

int report(const std::string& message, int exit_code) {
  std::cerr << "mantissa: " << message << "\n";
  return exit_code;
}

// LibTorch's messages carry a stack trace after their first line.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

int run(int argc, char** argv) {
  CLI::App app("Mixed precision training: train in 16 bits what you would have trained in 32.",
               "mantissa");
  app.set_version_flag("--version", "mantissa " MANTISSA_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Results go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 failed,\n"
      "2 wrong usage, 3 a gate was not met, 75 interrupted and saved (run again with --resume).");
  int exit_code = kDone;
  for (const auto add : {add_train, add_eval, add_compare, add_numerics, add_doctor}) {
    add(app, exit_code);
  }
  try {
    app.parse(argc, argv);
    std::cout.flush();
    return std::cout ? exit_code : report("stdout: cannot be written; is the disk full?", kFailed);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kWrongUsage;
  } catch (const InvalidArgument& error) {
    return report(error.what(), kWrongUsage);
  } catch (const Error& error) {
    return report(error.what(), kFailed);
  } catch (const c10::Error& error) {
    return report("LibTorch: " + first_line(error.what_without_backtrace()), kFailed);
  } catch (const std::bad_alloc&) {
    return report("out of memory; use a smaller train.microbatch, model or context", kFailed);
  } catch (const std::exception& error) {
    return report(first_line(error.what()), kFailed);
  }
}

}  // namespace
}  // namespace mantissa::cli

int main(int argc, char** argv) { return mantissa::cli::run(argc, argv); }
