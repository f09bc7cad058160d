// Assertions for our own invariants. They stay on in release builds and throw InternalError.
//
//   CAROLE_CHECK(count > 0, "bucket {} is empty", index);
//   CAROLE_CHECK_EQ(dy.shape(), y.shape(), "gradient of {}", node.name);
//
// The text after the condition is a format string of fmt, with its arguments. CAROLE_CHECK_EQ
// appends both values: "...: got [2,3], want [3,2]". Conditions are evaluated once.
//
// Bad input, a full disk or a dead peer are no bugs of ours: for these, throw a type of error.h.
#pragma once

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <sstream>
#include <string>

#include "src/core/error.h"

namespace carole {

// Throws InternalError with the location, the condition and `text`. The macros call it.
[[noreturn]] void FailCheck(const char* file, int line, const char* condition,
                            const std::string& text);

namespace internal {
// Formats any value that has operator<<.
template <typename T>
std::string ToText(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}
}  // namespace internal

}  // namespace carole

#define CAROLE_CHECK(condition, ...)                                                   \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      ::carole::FailCheck(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)

#define CAROLE_CHECK_EQ(a, b, ...)                                              \
  do {                                                                          \
    const auto& check_a = (a);                                                  \
    const auto& check_b = (b);                                                  \
    if (!(check_a == check_b)) [[unlikely]]                                     \
      ::carole::FailCheck(__FILE__, __LINE__, #a " == " #b,                     \
                          ::fmt::format(__VA_ARGS__) + ": got " +               \
                              ::carole::internal::ToText(check_a) + ", want " + \
                              ::carole::internal::ToText(check_b));             \
  } while (false)
