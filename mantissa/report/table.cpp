#include "mantissa/report/table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/nonfinite.h"
#include "mantissa/report/text_table.h"

namespace mantissa::report {
namespace {

// The fewest digits that read back equal.
std::string full_text(double number) {
  if (const auto name = nonfinite_name(number)) {
    return std::string(*name);
  }
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
  return {buffer.data(), end};
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string result = "\"";
  for (const char c : text) {
    result += c == '"' ? "\"\"" : std::string(1, c);
  }
  return result + "\"";
}

}  // namespace

std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      c = ' ';
    }
  }
  return text;
}

Cell text_cell(std::string text) { return {std::move(text), std::nullopt}; }

Cell number_cell(double number, std::string text) {
  return std::isnan(number) ? Cell{"-", std::nullopt} : Cell{std::move(text), number};
}

Cell decimal_cell(double number, int digits) {
  const double magnitude = std::fabs(number);
  const bool is_plain = magnitude == 0 || (magnitude >= std::pow(10, -digits) && magnitude < 1e7);
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), is_plain ? "%.*f" : "%.*g", is_plain ? digits : 3,
                number);
  return number_cell(number, buffer.data());
}

Cell count_cell(int64_t count) {
  return number_cell(static_cast<double>(count), std::to_string(count));
}

std::string to_text(const Table& table, size_t most_rows) {
  std::vector<std::vector<std::string>> rows(1);
  for (const Column& column : table.columns) {
    rows.front().push_back(printable(column.name));
  }
  const size_t shown = std::min(most_rows, table.rows.size());
  for (size_t i = 0; i < shown; ++i) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const Cell& cell : table.rows[i]) {
      row.push_back(printable(cell.text));
    }
  }
  const size_t left = table.rows.size() - shown;
  std::vector<bool> to_left;
  for (const Column& column : table.columns) {
    to_left.push_back(!column.is_number);
  }
  return text_table(rows, to_left) +
         (left == 0 ? "" : concat("... ", left, " more rows: --table ", table.id, "\n"));
}

std::string to_csv(const Table& table) {
  std::string text;
  const auto add_line = [&](const auto& parts, const auto& part_text) {
    for (size_t i = 0; i < parts.size(); ++i) {
      text += (i == 0 ? "" : ",") + quoted(part_text(i));
    }
    text += "\r\n";
  };
  add_line(table.columns, [&](size_t i) { return table.columns[i].name; });
  for (const std::vector<Cell>& row : table.rows) {
    add_line(row, [&](size_t i) -> std::string {
      if (!table.columns.at(i).is_number) {
        return row[i].text;
      }
      return row[i].number ? full_text(*row[i].number) : "";
    });
  }
  return text;
}

std::string to_json(const Table& table) {
  nlohmann::ordered_json json;
  json["id"] = table.id;
  json["caption"] = table.caption;
  json["columns"] = nlohmann::ordered_json::array();
  json["rows"] = nlohmann::ordered_json::array();
  for (const Column& column : table.columns) {
    json["columns"].push_back(column.name);
  }
  for (const std::vector<Cell>& row : table.rows) {
    nlohmann::ordered_json cells = nlohmann::ordered_json::array();
    for (size_t i = 0; i < row.size(); ++i) {
      if (!table.columns.at(i).is_number) {
        cells.push_back(row[i].text);
      } else if (!row[i].number) {
        cells.push_back(nullptr);
      } else if (const auto name = nonfinite_name(*row[i].number)) {
        cells.push_back(*name);
      } else {
        cells.push_back(*row[i].number);
      }
    }
    json["rows"].push_back(std::move(cells));
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace mantissa::report
