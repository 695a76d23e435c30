#pragma once

#include <string>
#include <string_view>

#include "mantissa/base/api.h"
#include "mantissa/report/report.h"

namespace mantissa::report {

/// `text` for any place in HTML, attributes too: without a character that has a meaning there.
/// Bytes that are not UTF-8 and control characters become U+FFFD.
MANTISSA_API std::string escape_html(std::string_view text);

/// JSON for a `script` element: without `<`, which could end it.
MANTISSA_API std::string escape_json_in_script(std::string_view json);

/// One file of HTML that needs nothing else and asks the network for nothing: styles, Chart.js with
/// its notice, our script, charts as data. Equal reports give equal pages.
MANTISSA_API std::string to_html(const Report& report, const std::string& command);

}  // namespace mantissa::report
