// Runs a program as a user would, in a process group of its own, with its output in files and a
// deadline.
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
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out;
  std::string err;
  double seconds = 0;      // from the start to the end
  bool timed_out = false;  // had to be killed
};

class Subprocess {
 public:
  explicit Subprocess(const std::vector<std::string>& words) : start_(Clock::now()) {
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ == 0) Become(words);
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
    std::erase(
        text,
        '\0');  // Open MPI 5 ends its notice of an abort with one; regular expressions stop there
    return text;
  }

  // Polls until `condition` holds; false when the program ends first or the time is over.
  bool WaitUntil(const std::function<bool()>& condition, double seconds) {
    const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
    while (!condition()) {
      if (Reap(WNOHANG) || Clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  // Waits for the end; a program that takes longer is killed.
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

  [[noreturn]] void Become(const std::vector<std::string>& words) const {
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

  // True once the program has ended.
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
