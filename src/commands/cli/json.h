// JSON on standard output.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace carole::commands {

// A line. Names of classes and variables come from files: what is no UTF-8 in them becomes U+FFFD.
inline void PrintJsonLine(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace carole::commands
