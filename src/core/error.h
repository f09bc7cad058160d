// The exceptions of carole, and the exit codes of the program. Each type has one exit code.
//
// The text of every error has the form `[tag] object: what happened: got X, want Y; hint`, in one
// line. The logger adds rank and time. These types are for faults outside of the program, such as
// bad input. Bugs of the program itself are caught by the macros of check.h.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

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

// The base of all errors that carole throws on purpose.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// A flag or an argument is wrong. The text begins with its name.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& text) : Error(ExitCode::kUsage, text) {}
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
// "carole: exit 69 (a peer or a device is gone)". `meaning` is usually Describe(code).
void PrintExit(int code, std::string_view meaning);

}  // namespace carole
