#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/report/section.h"

namespace mantissa::report {
namespace {

// It stands in the table of skipped steps.
bool is_skip_reason(const record::Message& message) {
  return message.text.starts_with(concat("step ", message.step, " skipped: "));
}

}  // namespace

Section messages_section(const Material& material) {
  Section section{.id = "messages", .title = "Messages"};
  Table table{.id = "messages", .caption = "Messages"};
  table.columns = {{"run"}, {"step", true}, {"level"}, {"text"}};
  constexpr size_t kMostRows = 2000;
  const size_t rows_per_run = std::max<size_t>(20, kMostRows / material.runs.size());
  size_t num_messages = 0;
  // Of too many the warnings stay, then those that came first.
  for (const Run& run : material.runs) {
    std::vector<record::Message> messages = run.messages;
    std::erase_if(messages, is_skip_reason);
    num_messages += messages.size();
    if (messages.size() > rows_per_run) {
      std::stable_sort(messages.begin(), messages.end(),
                       [](const record::Message& a, const record::Message& b) {
                         return a.level == record::Level::warning && b.level == record::Level::info;
                       });
      messages.resize(rows_per_run);
    }
    for (const record::Message& message : messages) {
      table.rows.push_back({text_cell(run.name), count_cell(message.step),
                            text_cell(message.level == record::Level::warning ? "warning" : "info"),
                            text_cell(message.text)});
    }
  }
  if (table.rows.size() < num_messages) {
    table.caption +=
        concat(": at most ", rows_per_run, " of each run, warnings first, of ", num_messages);
  }
  if (!table.rows.empty()) {
    section.tables.push_back(std::move(table));
  }
  return section;
}

}  // namespace mantissa::report
