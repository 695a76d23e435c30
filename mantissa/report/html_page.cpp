#include "mantissa/report/html_page.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>
#include <variant>
#include <vector>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/report/page_assets.h"

namespace mantissa::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The length of the UTF-8 sequence that `text` begins with; 0 when it is none (RFC 3629).
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto is_next = [&](size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  if (first >= 0xC2 && first <= 0xDF) {
    return is_next(1) ? 2 : 0;
  }
  if (first >= 0xE0 && first <= 0xEF) {
    const bool is_second =
        is_next(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF);  // no surrogates
    return is_second && is_next(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool is_second = is_next(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF);
    return is_second && is_next(2) && is_next(3) ? 4 : 0;
  }
  return 0;
}

std::string_view escaped(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

// Text that grows; `text` is escaped, `raw` is ours.
class Writer {
 public:
  template <typename... Parts>
  Writer& raw(const Parts&... parts) {
    (result_.append(parts), ...);
    return *this;
  }
  Writer& text(std::string_view text) {
    result_ += escape_html(text);
    return *this;
  }
  std::string take() { return std::move(result_); }

 private:
  std::string result_;
};

// What the script sorts by.
void write_number(Writer& page, double number) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
  page.raw(" data-number=\"",
           std::isinf(number) ? (number > 0 ? "Infinity" : "-Infinity")
                              : std::string_view(buffer.data(), end),
           "\"");
}

void write_table(Writer& page, const Table& table) {
  page.raw("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-labelledby=\"caption-",
           table.id, "\"><table id=\"table-", table.id, "\"><caption id=\"caption-", table.id,
           "\">")
      .text(table.caption)
      .raw("</caption>\n<thead><tr>");
  for (const Column& column : table.columns) {
    page.raw("<th scope=\"col\"", column.is_number ? " class=\"number\">" : ">")
        .text(column.name)
        .raw("</th>");
  }
  page.raw("</tr></thead>\n<tbody>\n");
  for (const std::vector<Cell>& row : table.rows) {
    page.raw("<tr>");
    for (size_t i = 0; i < row.size(); ++i) {
      const char* name = i == 0 ? "th" : "td";
      page.raw("<", name, i == 0 ? " scope=\"row\"" : "");
      if (table.columns.at(i).is_number) {
        page.raw(" class=\"number\"");
        if (row[i].number) {
          write_number(page, *row[i].number);
        }
      }
      constexpr size_t kLong = 48;  // characters that stay on a line
      if (row[i].text.size() > kLong) {
        page.raw(" class=\"long\"");
      }
      page.raw(">").text(row[i].text).raw("</", name, ">");
    }
    page.raw("</tr>\n");
  }
  page.raw("</tbody></table></div>\n");
}

void write_chart(Writer& page, const Chart& chart) {
  const auto [id, title, description] = std::visit(
      [](const auto& any) {
        return std::array{any.id, any.title, any.description};
      },
      chart);
  const bool is_wide = std::holds_alternative<HeatMap>(chart);
  page.raw("<figure id=\"chart-", id, is_wide ? "\" class=\"wide\">" : "\">", "<figcaption>")
      .text(title)
      .raw("</figcaption><p class=\"description\">")
      .text(description)
      .raw("</p><div class=\"plot\"><canvas role=\"img\" aria-label=\"")
      .text(title + ". " + description + " The figures are in the table after this chart.")
      .raw("\"></canvas></div><div class=\"legend\" role=\"group\" aria-label=\"")
      .text("Lines and parts of: " + title)
      .raw("\"></div><details><summary>Figures of this chart</summary>\n");
  write_table(page, figures_of(chart));
  page.raw("</details></figure>\n");
}

void write_section(Writer& page, const Section& section) {
  page.raw("<section id=\"", section.id, "\" aria-labelledby=\"title-", section.id,
           "\"><h2 id=\"title-", section.id, "\">")
      .text(section.title)
      .raw("</h2>\n");
  for (const std::string& paragraph : section.prose) {
    page.raw("<p>").text(paragraph).raw("</p>\n");
  }
  if (!section.charts.empty()) {
    page.raw("<div class=\"charts\">\n");
    for (const Chart& chart : section.charts) {
      write_chart(page, chart);
    }
    page.raw("</div>\n");
  }
  for (const Table& table : section.tables) {
    write_table(page, table);
  }
  const bool is_only = section.listings.size() == 1;
  for (const Listing& listing : section.listings) {
    page.raw("<details class=\"listing\"", is_only ? " open>" : ">", "<summary>")
        .text("Commands and run file: " + listing.title)
        .raw("</summary><pre tabindex=\"0\">")
        .text(listing.text)
        .raw("</pre></details>\n");
  }
  page.raw("</section>\n");
}

std::string chart_data(const Report& report) {
  std::string data;
  for (const Section& section : report.sections) {
    for (const Chart& chart : section.charts) {
      data += (data.empty() ? "[" : ",\n") + to_json(chart);
    }
  }
  return data.empty() ? "[]" : data + "]";
}

std::string title_of(const Report& report) {
  constexpr size_t kNamed = 3;
  std::string names;
  for (size_t i = 0; i < std::min(kNamed, report.runs.size()); ++i) {
    names += (i == 0 ? "" : ", ") + report.runs[i];
  }
  return report.runs.size() > kNamed ? concat(names, " and ", report.runs.size() - kNamed, " more")
                                     : names;
}

void write_head(Writer& page, const Report& report, const std::string& nonce) {
  page.raw(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "script-src 'nonce-",
      nonce, "'; style-src 'nonce-", nonce,
      "'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>");
  page.text("mantissa: " + title_of(report))
      .raw("</title>\n<style nonce=\"", nonce, "\">\n", kPageStyle, "</style>\n</head>\n");
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    const bool is_control = (first < ' ' && first != '\n' && first != '\t') || first == 0x7F;
    if (length == 0 || is_control) {
      result += kReplacement;
    } else if (const std::string_view entity = escaped(text.front()); !entity.empty()) {
      result += entity;
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result;
}

std::string escape_json_in_script(std::string_view json) {
  std::string result;
  result.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {  // only texts have one
      result += "\\u003c";
    } else {
      result += c;
    }
  }
  return result;
}

std::string to_html(const Report& report, const std::string& command) {
  const std::string data = escape_json_in_script(chart_data(report));
  Writer body;
  body.raw("<body>\n<a class=\"skip\" href=\"#main\">Skip to the report</a>\n<header><h1>")
      .text("mantissa report")
      .raw("</h1><p>")
      .text(concat(report.runs.size(),
                   report.runs.size() == 1 ? " run: " : " runs: ", title_of(report)))
      .raw("</p></header>\n<nav aria-label=\"Sections\"><ul>\n");
  for (const Section& section : report.sections) {
    body.raw("<li><a href=\"#", section.id, "\">").text(section.title).raw("</a></li>\n");
  }
  body.raw(
      "</ul></nav>\n<main id=\"main\" tabindex=\"-1\">\n<noscript><p class=\"failure\">"
      "Charts need JavaScript; all their figures are in the tables.</p></noscript>\n");
  for (const Section& section : report.sections) {
    write_section(body, section);
  }
  body.raw("</main>\n<footer><p>Made by <code>")
      .text(command)
      .raw(
          "</code>. This page holds all it needs and asks the network for nothing. "
          "Charts: Chart.js.</p><details><summary>Licence of Chart.js</summary><pre>")
      .text(kChartLicense)
      .raw("</pre></details></footer>\n");

  // Scripts and styles count only with this number, which follows from all texts, so that none of
  // them can hold it.
  const std::string text = body.take();
  const std::string nonce = hex(xxh3(text + data));
  Writer page;
  write_head(page, report, nonce);
  page.raw(text, "<script id=\"charts\" type=\"application/json\">", data, "</script>\n");
  for (const std::string_view script : {kChartScript, kPageScript}) {
    page.raw("<script nonce=\"", nonce, "\">\n", script, "\n</script>\n");
  }
  page.raw("</body>\n</html>\n");
  return page.take();
}

}  // namespace mantissa::report
