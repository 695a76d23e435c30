#include "mantissa/report/html_page.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mantissa/report/run_testing.h"

namespace mantissa::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t i = text.find(part); i != std::string::npos; i = text.find(part, i + 1)) {
    ++count;
  }
  return count;
}

TEST(EscapeHtml, LeavesNothingWithAMeaning) {
  EXPECT_EQ(escape_html("<a href=\"x\" id='y'>&amp;"),
            "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;amp;");
  EXPECT_EQ(escape_html("two\nlines\t!"), "two\nlines\t!");
  EXPECT_EQ(escape_html(""), "");
}

TEST(EscapeHtml, ReplacesControlCharactersAndWhatIsNotUtf8) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(escape_html(std::string("a\0b\x1b\x7f", 5)), "a" + bad + "b" + bad + bad);
  EXPECT_EQ(escape_html("\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80");
  EXPECT_EQ(escape_html("\xC0\xAF"), bad + bad);            // too long for its number
  EXPECT_EQ(escape_html("\xED\xA0\x80"), bad + bad + bad);  // a surrogate
  EXPECT_EQ(escape_html("\xF4\x90\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(escape_html("x\xE2\x82"), "x" + bad + bad);
  EXPECT_EQ(escape_html("\xFF<"), bad + "&lt;");
}

TEST(EscapeJson, CannotEndItsElement) {
  EXPECT_EQ(escape_json_in_script(R"(["</script><!--"])"), R"(["\u003c/script>\u003c!--"])");
}

TEST(HtmlPage, NamesFromFilesAreEscapedEverywhere) {
  const std::string evil = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>";
  report::Run run = example_run(evil, "fp16", 1);
  run.settings["precision.compute"] = evil;
  run.starts.front().cpu = evil;
  run.starts.front().config = "# " + evil;
  run.starts.front().versions = {{evil, evil}};
  run.steps.front().gradients[evil] = {{"norm", 1}, {"largest", 1}, {evil, 1}};
  run.steps.front().skipped = true;
  run.messages = {{1, record::Level::info, "step 1 skipped: " + evil},
                  {1, record::Level::warning, evil}};
  run.summary->precision = evil;
  run.summary->policy = evil;
  run.summary->stopped_by = evil;
  run.summary->peak_bytes[evil] = 5;
  run.summary->peak_holders[evil] = 5;
  run.summary->bytes_per_param[evil] = 5;
  const std::string page = to_html(make_report({run, example_run("b", "fp32", 1)}), evil);
  EXPECT_EQ(count_of(page, "<script>alert"), 0);
  EXPECT_EQ(count_of(page, "<img"), 0);
  EXPECT_EQ(count_of(page, "<script"), 3) << "the data, Chart.js and ours";
  EXPECT_EQ(count_of(page, "</script"), 3);
  EXPECT_GT(count_of(page, "&lt;/script&gt;"), 10);
  EXPECT_GT(count_of(page, "\\u003c/script>"), 3);
}

TEST(HtmlPage, AsksTheNetworkForNothing) {
  const std::string page = to_html(make_report({example_run("a", "fp32", 1)}), "x");
  EXPECT_THAT(page, HasSubstr("content=\"default-src 'none'; script-src 'nonce-"));
  for (const char* reference : {" src=", "@import", "<iframe", "<object", "url("}) {
    EXPECT_EQ(count_of(page.substr(0, page.find("<script")), reference), 0) << reference;
  }
}

TEST(HtmlPage, KeepsTheNoticeOfChartJs) {
  const std::string page = to_html(make_report({example_run("a", "fp32", 1)}), "x");
  EXPECT_THAT(page, HasSubstr("Chart.js v3."));
  EXPECT_THAT(page, HasSubstr("Released under the MIT License"));
  EXPECT_THAT(page, HasSubstr("Copyright (c) 2014-2022 Chart.js Contributors"));
  EXPECT_THAT(page, HasSubstr("Permission is hereby granted"));
}

TEST(HtmlPage, EqualReportsGiveEqualPages) {
  const auto page_of = [](int64_t seed) {
    return to_html(make_report({example_run("a", "fp32", seed)}), "x");
  };
  EXPECT_EQ(page_of(1), page_of(1));
  EXPECT_NE(page_of(1), page_of(2));
}

TEST(HtmlPage, EveryChartHasItsFiguresAndIdsAreUnique) {
  report::Run run = example_run("a", "fp16", 1);
  run.steps.front().skipped = true;
  run.steps.front().gradients["w"] = {{"norm", 1}, {"largest", 1}};
  const std::string page = to_html(make_report({run, example_run("b", "fp16", 2)}), "x");
  EXPECT_EQ(count_of(page, "<figure id="), count_of(page, "-figures\"><caption"));
  EXPECT_GT(count_of(page, "<figure id="), 8);
  std::set<std::string> ids;
  for (size_t i = page.find(" id=\""); i < page.find("<script"); i = page.find(" id=\"", i + 1)) {
    const std::string id = page.substr(i + 5, page.find('"', i + 5) - i - 5);
    EXPECT_TRUE(ids.insert(id).second) << id;
  }
}

TEST(HtmlPage, NumbersAreThereToSortBy) {
  Table table{.id = "t", .caption = "t", .columns = {{"run"}, {"n", true}}};
  table.rows = {{text_cell("a"), number_cell(1234567.25, "1.23M")},
                {text_cell("b"), number_cell(std::nan(""), "")},
                {text_cell("c"), number_cell(INFINITY, "inf")}};
  Report report;
  report.sections.push_back({.id = "s", .title = "S"});
  report.sections[0].tables.push_back(table);
  const std::string page = to_html(report, "x");
  EXPECT_THAT(page, HasSubstr("data-number=\"1234567.25\">1.23M</td>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"number\">-</td>"));
  EXPECT_THAT(page, HasSubstr("data-number=\"Infinity\">inf</td>"));
}

TEST(HtmlPage, OfLongRunsIsSmall) {
  std::vector<report::Run> runs;
  for (int i = 0; i < 5; ++i) {
    report::Run run = example_run("run-" + std::to_string(i), "fp16", 1, 100000);
    run.settings["optim.lr"] = std::to_string(i);
    for (record::Step& step : run.steps) {
      step.bits_per_base = 2 + std::sin(0.7 * static_cast<double>(step.step) + i);
      step.grad_norm = 1 + 1.0 / static_cast<double>(step.step);
      step.scale = 1 + static_cast<double>(step.step % 7);
    }
    runs.push_back(std::move(run));
  }
  EXPECT_LT(to_html(make_report(std::move(runs)), "x").size(), 2000000U);
}

}  // namespace
}  // namespace mantissa::report
