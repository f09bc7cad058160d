// Parses numbers, independent of the locale.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace carole {

// Returns the number if the whole text is one. Returns nullopt if the text contains anything else,
// also blanks or a plus sign, or if T cannot hold the number. `base` is for integers only.
template <typename T>
std::optional<T> ParseNumber(std::string_view text, [[maybe_unused]] int base = 10) {
  T number{};
  const char* const last = text.data() + text.size();
  std::from_chars_result read;
  if constexpr (std::is_integral_v<T>) {
    read = std::from_chars(text.data(), last, number, base);
  } else {
    read = std::from_chars(text.data(), last, number);
  }
  if (read.ec != std::errc() || read.ptr != last) return std::nullopt;
  return number;
}

}  // namespace carole
