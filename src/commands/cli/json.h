// Prints JSON on standard output.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace carole::commands {

// Prints one line. Class and variable names come from files, so bytes that are not UTF-8 are
// replaced by U+FFFD.
inline void PrintJsonLine(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace carole::commands
