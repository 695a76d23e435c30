#include "mantissa/report/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/faulty_files.h"
#include "mantissa/base/message_of.h"
#include "mantissa/base/scratch_folder.h"
#include "mantissa/record/event.h"
#include "mantissa/report/run_testing.h"

namespace mantissa::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CommandTest : public ::testing::Test {
 protected:
  CommandTest() {
    const auto example = example_run("a", "bf16", 1);
    std::string lines = record::to_json({1.0, example.starts.front()}) + "\n";
    for (const record::Step& step : example.steps) {
      lines += record::to_json({1.0, step}) + "\n";
    }
    lines += record::to_json({2.0, record::RunEnd{*example.summary}}) + "\n";
    folder_.write("a/record.jsonl", lines);
    options_.runs = {(folder_ / "a").string()};
  }

  CommandResult run() const { return run_command(options_, "mantissa-report"); }

  ScratchFolder folder_;
  CommandOptions options_;
};

TEST_F(CommandTest, PrintsTablesAsText) {
  const CommandResult result = run();
  EXPECT_THAT(result.text, StartsWith("Comparison\n\nRuns\nrun  precision  policy "));
  EXPECT_THAT(result.text, HasSubstr("\nSpeed\n"));
  EXPECT_TRUE(result.messages.empty());
}

TEST_F(CommandTest, PrintsOneTable) {
  options_.table = "step-times";
  EXPECT_THAT(run().text, StartsWith("run  steps   median"));
  options_.csv = true;
  EXPECT_THAT(run().text, StartsWith("run,steps,median,mean,"));
  EXPECT_THAT(run().text, HasSubstr("\r\na,3,0.01,0.01,"));
  options_.csv = false;
  options_.json = true;
  EXPECT_THAT(run().text, StartsWith("{\"id\":\"step-times\","));
}

TEST_F(CommandTest, CsvIsTheTableOfRuns) {
  options_.csv = true;
  EXPECT_THAT(run().text, StartsWith("run,precision,policy,seed,"));
}

TEST_F(CommandTest, JsonHasAllTables) {
  options_.json = true;
  const std::string text = run().text;
  EXPECT_THAT(text, StartsWith("{\"schema\":1,\"runs\":[\"a\"],\"tables\":[{\"id\":\"runs\","));
  EXPECT_THAT(text, HasSubstr("{\"id\":\"step-times\","));
  EXPECT_THAT(text, ::testing::EndsWith("]}\n"));
}

TEST_F(CommandTest, AnUnknownTableIsNamedWithTheNearest) {
  options_.table = "step-time";
  EXPECT_EQ(message_of<InvalidArgument>([&] { run(); }),
            "--table \"step-time\"; did you mean \"step-times\"?");
}

TEST_F(CommandTest, WritesThePage) {
  options_.output = (folder_ / "r.html").string();
  const CommandResult result = run();
  EXPECT_EQ(result.text, "");
  EXPECT_THAT(result.messages, ElementsAre(StartsWith("wrote " + options_.output + ", ")));
  const std::string page = folder_.read("r.html");
  EXPECT_THAT(page, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, HasSubstr("<code>mantissa-report " + options_.runs[0] + " -o "));
  EXPECT_THAT(page, ::testing::EndsWith("</html>\n"));
}

TEST_F(CommandTest, RefusesAnOutputThatIsNoPage) {
  for (const char* name : {"r.pdf", "a/record.jsonl", "a"}) {
    options_.output = (folder_ / name).string();
    EXPECT_THAT(message_of<InvalidArgument>([&] { run(); }),
                HasSubstr("is no name of a page; name a file that ends in .html"));
  }
}

TEST_F(CommandTest, AFailureLeavesThePageThatWasThere) {
  folder_.write("r.html", "before");
  options_.output = (folder_ / "r.html").string();
  FaultyFiles counting(posix_files());
  run_command(options_, "x", counting);
  const int64_t calls = counting.num_calls();
  ASSERT_GT(calls, 5);
  int failures = 0;
  for (int64_t i = 0; i < calls; ++i) {
    folder_.write("r.html", "before");
    FaultyFiles files(posix_files(), {.at_call = i, .effect = Fault::Effect::disk_full});
    try {
      run_command(options_, "x", files);
    } catch (const IoError&) {
      ++failures;
      EXPECT_EQ(folder_.read("r.html"), "before") << i;
    }
  }
  EXPECT_GT(failures, 1);
  EXPECT_THAT(list_folder(folder_.path()), ElementsAre("a", "r.html"));
}

TEST_F(CommandTest, ATableThatIsNotThereLeavesNoPage) {
  options_.output = (folder_ / "r.html").string();
  options_.table = "nothing";
  EXPECT_THROW(run(), InvalidArgument);
  EXPECT_FALSE(path_exists(folder_ / "r.html"));
}

}  // namespace
}  // namespace mantissa::report
