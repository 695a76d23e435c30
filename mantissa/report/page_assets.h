#pragma once

#include <string_view>

namespace mantissa::report {

// Files that are part of every page; CMakeLists.txt makes the source of this header out of them.
extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;
extern const std::string_view kChartScript;   // Chart.js
extern const std::string_view kChartLicense;  // its notice

}  // namespace mantissa::report
