// Signals and child processes. Children are started with an argument vector; no shell ever sees it.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "src/core/files/file_descriptor.h"

namespace carole::launch {

// Returns the absolute path of a program that is found in PATH or in one of the system's sbin
// folders. Throws ConfigError, whose text names the Debian package to install, if there is none.
std::string FindProgram(const std::string& name, const std::string& package);

// Returns true for SIGTERM, SIGINT and SIGHUP.
bool IsTerminationSignal(int signal);

// While this object lives, the signals that people and schedulers send are blocked, and Wait()
// takes them one by one. SIGPIPE is ignored. Only one object may exist at a time. Create it before
// other threads, so that they inherit the blocked signals.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  // Sleeps for this long, or until SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2 arrives, and returns
  // the signal. A SIGHUP that follows a termination signal is dropped.
  std::optional<int> Wait(int milliseconds);

 private:
  sigset_t set_;
  sigset_t before_;
  void (*pipe_before_)(int);
  bool was_asked_to_end_ = false;
};

// A child process in a process group of its own. The child gets SIGTERM when this process dies, and
// SIGKILL if the object is destroyed while the child still runs.
class Process {
 public:
  struct Options {
    std::vector<std::string> argv;  // argv[0] is the path of the program
    // true: the object writes to the child's standard input and collects its standard output and
    // standard error. false: standard input is /dev/null. The child inherits the other two.
    bool pipes = false;
  };

  // Starts the child. Throws ConfigError if the system has no more processes or pipes.
  explicit Process(const Options& options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Returns whether the child still runs. Does not block.
  bool IsRunning();
  int exit_code() const { return exit_code_; }  // after the end; 128 + signal if a signal ended it
  pid_t pid() const { return pid_; }

  void Signal(int signal) const;

  // Returns all output so far, at most about 64 KiB. Does not block.
  const std::string& Output();
  // Writes a short text to the child's standard input and closes it. Throws DiskError if that
  // fails, unless the child has closed its input.
  void WriteAndCloseInput(const std::string& text);

 private:
  pid_t pid_ = -1;
  FileDescriptor in_, out_;
  int exit_code_ = -1;
  std::string output_;
};

// Executes a program in place of this process: argv[0] is its path. It gets the signals that are
// sent to this process, and its exit code is the one of this process. Throws ConfigError if that
// fails.
[[noreturn]] void ReplaceProcess(const std::vector<std::string>& argv);

// Runs a program that ends soon and returns its output. Throws ConfigError, whose text contains the
// output, if its exit code is not 0.
std::string RunAndCaptureOutput(const std::vector<std::string>& argv);

}  // namespace carole::launch
