// Child processes, started by argument vector: no shell ever sees a word of them.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "src/core/files/file_descriptor.h"

namespace carole::launch {

// The absolute path of a program in PATH or in the system's sbin folders. Throws ConfigError that
// names the Debian package to install.
std::string FindProgram(const std::string& name, const std::string& package);

// SIGTERM, SIGINT and SIGHUP do.
bool AsksToEnd(int signal);

// Blocks the signals that people and schedulers send while it lives, so that they are taken in
// turn, and ignores SIGPIPE. One object at a time, made before other threads.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Sleeps so long, or until SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2 comes and is returned;
  // SIGHUP only if nothing asked to end before.
  std::optional<int> Wait(int milliseconds);

 private:
  sigset_t set_;
  sigset_t before_;
  void (*pipe_before_)(int);
  bool asked_to_end_ = false;
};

// A child in a process group of its own; it gets SIGTERM when this process dies, and SIGKILL when
// the object goes while it still runs.
class Process {
 public:
  struct Options {
    std::vector<std::string> words;  // the first is the program's path
    // true: the object holds standard input, and keeps what comes from output and error. false:
    // /dev/null, and this process's own output and error.
    bool pipes = false;
  };

  // Throws DiskError when the system has no more processes or pipes.
  explicit Process(const Options& options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Whether it still runs; does not wait.
  bool Running();
  int exit_code() const { return exit_code_; }  // once it has ended; 128 + signal
  pid_t pid() const { return pid_; }

  void Signal(int signal) const;

  // All that it has printed so far; does not wait.
  const std::string& Output();
  // Writes a short text to its standard input, then closes it.
  void Finish(const std::string& text);

 private:
  pid_t pid_ = -1;
  FileDescriptor in_, out_;
  int exit_code_ = -1;
  std::string output_;
};

// Runs a short program to its end and returns what it printed. Throws ConfigError with that when it
// fails.
std::string RunToEnd(const std::vector<std::string>& words);

}  // namespace carole::launch
