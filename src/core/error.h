// Errors of carole: one type for each exit code, so that a caller can choose and main can say what
// happened.
//
// The text of every error is `[tag] object: what happened: got X, want Y; hint`. Rank and time are
// added by the logger. Errors are for the world's faults; our own mistakes are caught by check.h.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace carole {

// Exit codes of the program (the numbers of sysexits.h where one fits).
enum class ExitCode : int {
  kOk = 0,
  kUsage = 64,         // a flag or command is wrong
  kData = 65,          // records, images or checkpoints are damaged or do not fit
  kUnavailable = 69,   // a peer or a device is gone
  kInternal = 70,      // our bug
  kDisk = 74,          // reading or writing failed in the operating system
  kSaved = 75,         // stopped on request after saving: run the same command again
  kConfiguration = 78  // the machine or the job is set up wrongly
};

// Base of all errors that carole throws on purpose.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// The user's flags or arguments are wrong.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& text) : Error(ExitCode::kUsage, text) {}
};

// A file's content is damaged or does not fit; the text names file, record and byte offset.
class DataError : public Error {
 public:
  explicit DataError(const std::string& text) : Error(ExitCode::kData, text) {}
};

// A peer is gone, late, or out of step; the text names peer, operation and deadline.
class CommError : public Error {
 public:
  explicit CommError(const std::string& text) : Error(ExitCode::kUnavailable, text) {}
};

// A device or its library failed; the text names library, call and status.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& text) : Error(ExitCode::kUnavailable, text) {}

 protected:
  DeviceError(ExitCode code, const std::string& text) : Error(code, text) {}
};

// A device has not so much memory: another try would end alike.
class DeviceMemoryError : public DeviceError {
 public:
  explicit DeviceMemoryError(const std::string& text)
      : DeviceError(ExitCode::kConfiguration, text) {}
};

// The operating system could not open, read, write or rename; the text names path and errno's
// words.
class DiskError : public Error {
 public:
  explicit DiskError(const std::string& text) : Error(ExitCode::kDisk, text) {}
};

// Machine, environment or job are set up so that nothing sensible can run.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& text) : Error(ExitCode::kConfiguration, text) {}
};

// An invariant of carole itself is broken (thrown by CAROLE_CHECK).
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& text) : Error(ExitCode::kInternal, text) {}
};

// The text of an error without its "[tag] ", for one that has a text around it.
inline std::string_view WithoutTag(std::string_view text) {
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
  return end == std::string_view::npos ? text : text.substr(end + 2);
}

// The words for an exit code: "bad data", "a peer or a device is gone", …
const char* Describe(ExitCode code);

// "carole: exit 69 (a peer or a device is gone)" on standard error: the last line of a process.
void PrintExit(int code, std::string_view meaning);

}  // namespace carole
