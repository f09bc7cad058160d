// Runs a program as a user would: in a new process group, with its output in files and a deadline.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace carole::testing {

struct ProcessResult {
  int exit_code = -1;  // 128 + signal if a signal ended the program
  std::string out;     // standard output
  std::string err;     // standard error
  double seconds = 0;  // from the start to the end
  bool timed_out = false;
};

// A running program. The destructor kills it.
class Subprocess {
 public:
  explicit Subprocess(const std::vector<std::string>& words) : start_(Clock::now()) {
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ == 0) ExecInChild(words);
  }
  ~Subprocess() {
    if (pid_ <= 0) return;
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  void Signal(int signal) const { kill(pid_, signal); }
  std::string out() const { return ReadText(folder_ / "out"); }
  std::string err() const {
    std::string text = ReadText(folder_ / "err");
    // Open MPI 5 ends its notice of an abort with NUL, at which regular expressions stop.
    std::erase(text, '\0');
    return text;
  }

  // Polls until `condition` holds. Returns false if the program ends first or the time is over.
  bool WaitUntil(const std::function<bool()>& condition, double seconds) {
    const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
    while (!condition()) {
      if (Reap(WNOHANG) || Clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  // Waits for the end of the program. Kills its process group if it takes longer.
  ProcessResult Wait(double seconds = 400) {
    WaitUntil([] { return false; }, seconds);
    const bool timed_out = pid_ > 0;
    if (timed_out) {
      kill(-pid_, SIGKILL);
      Reap(0);
    }
    return {exit_code_, out(), err(), seconds_, timed_out};
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Redirects the output and executes the program. Runs in the forked child.
  [[noreturn]] void ExecInChild(const std::vector<std::string>& words) const {
    setpgid(0, 0);
    const int out = open((folder_ / "out").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    const int err = open((folder_ / "err").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
  }

  // Collects the exit status. Returns true if the program has ended. `flags` are those of
  // waitpid().
  bool Reap(int flags) {
    if (pid_ <= 0) return true;
    int status = 0;
    if (waitpid(pid_, &status, flags) != pid_) return false;
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    seconds_ = std::chrono::duration<double>(Clock::now() - start_).count();
    pid_ = 0;
    return true;
  }

  TemporaryFolder folder_;
  Clock::time_point start_;
  pid_t pid_ = 0;
  int exit_code_ = -1;
  double seconds_ = 0;
};

inline ProcessResult RunProcess(const std::vector<std::string>& words, double seconds = 400) {
  return Subprocess(words).Wait(seconds);
}

}  // namespace carole::testing
