#include "src/core/error.h"

namespace carole {

const char* Describe(ExitCode code) {
  if (static_cast<int>(code) == 1) return "trouble found";  // carole doctor
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
      return "disk trouble";
    case ExitCode::kSaved:
      return "saved; run the same command again to continue";
    case ExitCode::kConfiguration:
      return "bad configuration";
  }
  return "unknown";
}

}  // namespace carole
