// The program's log: one line for each event on standard error, `I 12:00:01.234 [rank 3] [data]
// text`.
//
// Ranks other than 0 print warnings and errors only, unless CAROLE_LOG_ALL_RANKS=1. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace carole {

enum class LogLevel { kInfo, kWarning, kError };

// Sets the rank that lines carry. size 1 leaves the rank out. Call once, before other threads log.
void SetLogRank(int rank, int size);

// Called before a line is written: a progress bar on the terminal uses it to clear itself. May be
// empty.
void SetLogHook(void (*before_line)());

void LogLine(LogLevel level, std::string_view tag, const std::string& text);

template <typename... Args>
void LogInfo(std::string_view tag, fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kInfo, tag, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void LogWarning(std::string_view tag, fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kWarning, tag, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void LogError(std::string_view tag, fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kError, tag, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace carole
