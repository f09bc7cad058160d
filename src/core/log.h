// The log of the program, on standard error. Each event is one line: level (I, W or E), time, rank,
// tag, text. For example:
//
//   W 12:00:01.234 [rank 3] [data] text
//
// Rank 0 prints everything. The other ranks print warnings and errors only, unless the environment
// variable CAROLE_LOG_ALL_RANKS is 1. The functions that write lines are thread-safe.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace carole {

enum class LogLevel { kInfo, kWarning, kError };

// Sets the rank that the lines show. If `size` (the number of ranks) is 1, they show no rank. Call
// it once, before other threads log.
void SetLogRank(int rank, int size);

// Sets a function that is called before each line is written; null for none. A progress bar uses it
// to clear itself from the terminal.
void SetLogHook(void (*before_line)());

// Sets a function that rewrites the text of each line; null for none. The program uses it to
// replace the names of options (Option() in error.h) by its flags.
void SetLogRewrite(std::string (*rewrite)(std::string_view text));

// Writes one line. An empty tag is left out.
void LogLine(LogLevel level, std::string_view tag, const std::string& text);

// These format the text with fmt.
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
