#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/base/api.h"

namespace mantissa::report {

/// What people read, and for figures the number that tables are sorted by and files hold.
struct Cell {
  std::string text;
  std::optional<double> number;  // none in a column of numbers: not known
};

struct Column {
  std::string name;
  bool is_number = false;
};

/// A table of figures: rows are sorted by any column in a page, and are the records of JSON and
/// CSV.
struct Table {
  std::string id;  // letters and hyphens; unique in a report
  std::string caption;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

/// A text; of a number what it is called, such as "nan", counts as a text too.
MANTISSA_API Cell text_cell(std::string text);

/// `text` is how people read `number`. NaN is not known: "-".
MANTISSA_API Cell number_cell(double number, std::string text);

/// With so many digits after the point; very large and small ones with an exponent.
MANTISSA_API Cell decimal_cell(double number, int digits);

MANTISSA_API Cell count_cell(int64_t count);

/// Spaces in the place of control characters, which a terminal would obey.
MANTISSA_API std::string printable(std::string text);

/// The first `most_rows` rows as aligned text, and a line that says how many were left out.
MANTISSA_API std::string to_text(const Table& table, size_t most_rows);

/// RFC 4180: a line of names, then a line a row. Numbers in full; nothing for what is not known.
MANTISSA_API std::string to_csv(const Table& table);

/// `{"id":...,"caption":...,"columns":[...],"rows":[[...]]}`. Numbers in full, as in a record:
/// infinities are texts, what is not known is null.
MANTISSA_API std::string to_json(const Table& table);

}  // namespace mantissa::report
