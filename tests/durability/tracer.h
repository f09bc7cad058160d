// Runs a program and stops it at every system call that concerns files of one folder. An observer
// sees each call, and may kill the process there or make the call fail. Linux on x86-64 only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace carole::testing {

// What a call does to files.
enum class CallKind : uint8_t {
  kOpen,
  kWrite,
  kResize,
  kSync,
  kClose,
  kRename,
  kLink,
  kUnlink,
  kMakeFolder,
  kRemoveFolder,
  kMap
};

// A system call of the traced program. Its path is in the folder, or is the folder.
struct TracedCall {
  CallKind kind = CallKind::kOpen;
  const char* name = "";    // such as "pwrite64"
  pid_t thread = 0;         // is stopped while the observer looks
  int descriptor = -1;      // of calls that have one; of open after the call
  std::string path;         // absolute
  std::string new_path;     // of rename and link
  bool may_create = false;  // open: with O_CREAT
  bool truncates = false;   // open: with O_TRUNC
  bool existed = false;     // whether `path` existed before the call
  int64_t size_before = 0;  // of the file, if it existed
  int64_t offset = 0;       // of a write
  int64_t wanted = 0;       // bytes of a write, if one buffer has them; new size of a resize
  int64_t result = 0;       // after the call; negative errno
};

// What happens to a call.
struct Injection {
  enum class Kind : uint8_t { kNone, kKill, kError, kShortWrite } kind = Kind::kNone;
  int error = 0;  // errno of kError
};

class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Called before the call is executed. Calls are seen one after the other, also those of several
  // threads and processes.
  virtual Injection Before(const TracedCall& call) = 0;
  // Called after the call, unless the process died.
  virtual void After(const TracedCall& call) = 0;
};

struct TraceResult {
  int exit_code = -1;  // 128 + signal if a signal ended the program
  std::string out, err;
  bool timed_out = false;
};

// Runs the program with its child processes to their end. `folder` is an absolute path without
// symbolic links. Kills all after `seconds`. Throws std::runtime_error if it cannot be traced.
TraceResult RunTraced(const std::vector<std::string>& words, const std::string& folder,
                      CallObserver& observer, int seconds = 300);

// Returns why programs cannot be traced here; "" if they can.
std::string WhyNotTraceable();

}  // namespace carole::testing
