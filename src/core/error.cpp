#include "src/core/error.h"

#include <fmt/format.h>

#include <cstdio>

namespace carole {

const char* Describe(ExitCode code) {
  if (static_cast<int>(code) == 1) return "problem found";  // carole doctor
  switch (code) {
    case ExitCode::kOk:
      return "done";
    case ExitCode::kUsage:
      return "wrong usage";
    case ExitCode::kData:
      return "bad data";
    case ExitCode::kUnavailable:
      return "a peer or a device is gone";
    case ExitCode::kInternal:
      return "a bug in carole; please report it";
    case ExitCode::kDisk:
      return "disk problem";
    case ExitCode::kSaved:
      return "saved; run the same command again to continue";
    case ExitCode::kConfiguration:
      return "bad configuration";
  }
  return "unknown";
}

void PrintExit(int code, std::string_view meaning) {
  const std::string line = fmt::format("carole: exit {} ({})\n", code, meaning);
  // Not fmt::print: it throws if standard error was closed.
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace carole
