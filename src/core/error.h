// The exceptions of carole, and the exit codes of the program. Each type has one exit code.
//
// The text of every error has the form `[tag] object: what happened: got X, want Y; hint`, in one
// line. The logger adds rank and time. These types are for faults outside of the program, such as
// bad input. Bugs of the program itself are caught by the macros of check.h.
//
// Options. A library knows its options by name, but not how a user sets them. So it never writes
// "--batch_size" in an error or a log line, but Option("batch_size"). This marks the name in the
// text; the program replaces the mark by its flag when it prints the text (WithFlags() in
// src/commands/cli/flag_names.h). An option has the same name as its flag. An error about the value
// of one option is made from an OptionProblem:
//
//   throw UsageError({.tag = "optim",
//                     .option = "num_epochs_per_decay",
//                     .problem = "too small",
//                     .got = o.num_epochs_per_decay,
//                     .want = "at least 1 step",
//                     .hint = "use a larger value or " +
//                             Option("learning_rate_decay_type", "fixed")});
//   // [optim] --num_epochs_per_decay: too small: got 0, want at least 1 step; use a larger value
//   or
//   // --learning_rate_decay_type=fixed
#pragma once

#include <concepts>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace carole {

// Exit codes of the program. The numbers are those of sysexits.h. Scripts rely on them.
enum class ExitCode : int {
  kOk = 0,
  kUsage = 64,         // a flag or command is wrong
  kData = 65,          // records, images or checkpoints are damaged or do not match the net
  kUnavailable = 69,   // another rank or a device is gone
  kInternal = 70,      // a bug in carole
  kDisk = 74,          // the operating system could not read or write a file
  kSaved = 75,         // stopped on request after saving; the same command continues the run
  kConfiguration = 78  // the machine or the job is not set up correctly
};

// What stands before the name of an option in a text. The control character keeps texts of users,
// such as "$(id)", from being taken for options.
inline constexpr std::string_view kOptionMark = "\x1f$(";
// Returns the name of an option, marked for WithFlags(): "$(batch_size)" with kOptionMark.
std::string Option(std::string_view name);
// Returns an option with a value: "$(batch_size)=32".
std::string Option(std::string_view name, std::string_view value);

// A value in the text of an error. Numbers are written with as many digits as they need.
class ShownValue {
 public:
  // NOLINTBEGIN(google-explicit-constructor)
  ShownValue() = default;
  ShownValue(std::string text) : text_(std::move(text)) {}
  ShownValue(std::string_view text) : text_(text) {}
  ShownValue(const char* text) : text_(text) {}
  ShownValue(double number);
  template <std::integral T>
  ShownValue(T number) : text_(std::to_string(number)) {}
  // NOLINTEND(google-explicit-constructor)
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// What is wrong with the value of an option. Only tag and option are always there. Its text is
// "[tag] $(option): problem: got X, want Y; hint". An empty value that was given is shown as "got
// nothing".
struct OptionProblem {
  std::string_view tag;
  std::string_view option;
  std::string problem;
  std::optional<ShownValue> got;
  std::string want;
  std::string hint;

  std::string Text() const;
};

// The base of all errors that carole throws on purpose.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// An option or an argument is wrong. The text begins with its name.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& text) : Error(ExitCode::kUsage, text) {}
  explicit UsageError(const OptionProblem& problem) : UsageError(problem.Text()) {}
};

// The content of a file is damaged or does not match what was asked for. The text names the file,
// the record and the byte offset.
class DataError : public Error {
 public:
  explicit DataError(const std::string& text) : Error(ExitCode::kData, text) {}
};

// Another rank is gone, late, or executes another operation. The text names the rank, the operation
// and the deadline.
class CommError : public Error {
 public:
  explicit CommError(const std::string& text) : Error(ExitCode::kUnavailable, text) {}
};

// A device or its library failed. The text names the library, the call and the status.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& text) : Error(ExitCode::kUnavailable, text) {}

 protected:
  DeviceError(ExitCode code, const std::string& text) : Error(code, text) {}
};

// A device has too little memory. Its exit code is that of a configuration error, because another
// attempt with the same flags would fail in the same way.
class DeviceMemoryError : public DeviceError {
 public:
  explicit DeviceMemoryError(const std::string& text)
      : DeviceError(ExitCode::kConfiguration, text) {}
};

// The operating system could not open, read, write or rename a file. The text names the path and
// the reason (the text of errno).
class DiskError : public Error {
 public:
  explicit DiskError(const std::string& text) : Error(ExitCode::kDisk, text) {}
};

// The machine, the environment or the job is not set up correctly.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& text) : Error(ExitCode::kConfiguration, text) {}
  explicit ConfigError(const OptionProblem& problem) : ConfigError(problem.Text()) {}
};

// An invariant of carole itself does not hold. Thrown by CAROLE_CHECK.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& text) : Error(ExitCode::kInternal, text) {}
};

// Returns the text of an error without its "[tag] ", so that it can be quoted in another message.
inline std::string_view WithoutTag(std::string_view text) {
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
  return end == std::string_view::npos ? text : text.substr(end + 2);
}

// Returns the meaning of an exit code in words, such as "bad data", or "unknown".
const char* Describe(ExitCode code);

// Writes the last line of a process to standard error:
// "carole: exit 69 (a rank or a device is gone)". `meaning` is usually Describe(code).
void PrintExit(int code, std::string_view meaning);

}  // namespace carole
