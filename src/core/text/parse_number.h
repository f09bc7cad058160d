// Numbers in text, whatever the locale.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace carole {

// The number that the whole text is: without blanks, a plus, or more than T can hold; else nullopt.
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
