#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace mantissa::bench {

enum class Style : uint8_t { text, markdown };

/// The result of a run for people: machine, roofline, a line a row.
std::string render(const nlohmann::json& run, Style style);

/// One figure's lines, while others are still measured.
std::string render_figure(const nlohmann::json& figure);

}  // namespace mantissa::bench
