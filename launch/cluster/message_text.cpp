#include "launch/cluster/message_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <regex>

namespace carole::launch {
namespace {

constexpr size_t kMaxQuotedLength = 64;

}  // namespace

std::string Quote(std::string_view text) {
  const nlohmann::json shown = std::string(text.substr(0, kMaxQuotedLength));
  const auto replace = nlohmann::json::error_handler_t::replace;
  const std::string quoted = shown.dump(-1, ' ', /*ensure_ascii=*/true, replace);
  if (text.size() <= kMaxQuotedLength) return quoted;
  return fmt::format("{} and {} more bytes", quoted, text.size() - kMaxQuotedLength);
}

std::string FirstMatch(const std::string& text, const char* pattern) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? match[0].str() : "";
}

}  // namespace carole::launch
