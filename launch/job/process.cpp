#include "launch/job/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "launch/cluster/message_text.h"
#include "src/core/error.h"

namespace carole::launch {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
constexpr size_t kMaxOutput = 1 << 16;  // bytes that are kept of a child's output

[[noreturn]] void FailToStart(const std::string& program, const char* limit) {
  throw ConfigError(fmt::format("[launch] {}: cannot be started: {}; raise {}", program,
                                std::strerror(errno), limit));
}

struct Pipe {
  FileDescriptor read, write;
};

Pipe MakePipe(const std::string& program) {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) FailToStart(program, "ulimit -n");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::vector<char*> ToExecArguments(const std::vector<std::string>& argv) {
  std::vector<char*> pointers;
  for (const std::string& word : argv) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Executes the program in the child after fork(), where only async-signal-safe functions may be
// called.
[[noreturn]] void ExecuteInChild(char* const* argv, int in, int out, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // the parent died before prctl()
  dup2(in, STDIN_FILENO);
  if (out >= 0) {
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

std::string FindProgram(const std::string& name, const std::string& package) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(std::string(path == nullptr ? "/usr/bin:/bin" : path) +
                             ":/usr/local/sbin:/usr/sbin:/sbin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = fmt::format("{}/{}", folder, name);
    if (folder.starts_with('/') && access(file.c_str(), X_OK) == 0) return file;
  }
  throw ConfigError(
      fmt::format("[launch] {}: not found in PATH; install the package {}", name, package));
}

bool IsTerminationSignal(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

BlockedSignals::BlockedSignals() {
  sigemptyset(&set_);
  for (int signal : kSignals) sigaddset(&set_, signal);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set_, SIGHUP);  // under nohup it stays ignored
  sigprocmask(SIG_BLOCK, &set_, &before_);
  // In `... 2>&1 | tee LOG`, Ctrl-C ends tee before the job has saved. Then nobody reads the log
  // any more, and writing to it must not end this process.
  pipe_before_ = std::signal(SIGPIPE, SIG_IGN);
}

BlockedSignals::~BlockedSignals() {
  std::signal(SIGPIPE, pipe_before_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> BlockedSignals::Wait(int milliseconds) {
  const timespec time{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
  const int signal = sigtimedwait(&set_, nullptr, &time);
  if (signal <= 0) return std::nullopt;
  // Closing a terminal sends SIGHUP twice: from its shell, and again when the terminal goes away.
  // The second one is not another request to stop.
  if (signal == SIGHUP && was_asked_to_end_) return std::nullopt;
  was_asked_to_end_ = was_asked_to_end_ || IsTerminationSignal(signal);
  return signal;
}

Process::Process(const Options& options) {
  std::vector<char*> argv = ToExecArguments(options.argv);
  Pipe in, out;
  if (options.pipes) {
    in = MakePipe(options.argv[0]);
    out = MakePipe(options.argv[0]);
    fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  } else {
    in.read = FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) ExecuteInChild(argv.data(), in.read.get(), out.write.get(), parent);
  if (pid_ < 0) FailToStart(options.argv[0], "ulimit -u, or pids.max of the cgroup");
  in_ = std::move(in.write);
  out_ = std::move(out.read);
}

Process::~Process() {
  if (!IsRunning()) return;
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Process::IsRunning() {
  if (pid_ <= 0) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  pid_ = -1;
  return false;
}

void Process::Signal(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

const std::string& Process::Output() {
  std::array<char, 4096> bytes;
  for (ssize_t got; out_.is_open() && (got = read(out_.get(), bytes.data(), bytes.size())) > 0;) {
    if (output_.size() < kMaxOutput) output_.append(bytes.data(), got);
  }
  return output_;
}

void Process::WriteAndCloseInput(const std::string& text) {
  if (!in_.is_open()) return;
  // Writing to a child that has ended must not end this process with SIGPIPE.
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  if (write(in_.get(), text.data(), text.size()) < 0 && errno != EPIPE)
    throw DiskError(fmt::format("[launch] child process: its standard input cannot be written: {}",
                                std::strerror(errno)));
  sigaction(SIGPIPE, &before, nullptr);
  in_ = FileDescriptor();
}

void ReplaceProcess(const std::vector<std::string>& argv) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const auto pipe_before = std::signal(SIGPIPE, SIG_DFL);  // an ignored signal stays ignored
  execv(words[0], words.data());
  const int error = errno;
  std::signal(SIGPIPE, pipe_before);
  throw ConfigError(fmt::format("[launch] {}: {}", argv[0], std::strerror(error)));
}

std::string RunAndCaptureOutput(const std::vector<std::string>& argv) {
  Process process({.argv = argv, .pipes = true});
  process.WriteAndCloseInput("");
  while (process.IsRunning()) {
    process.Output();
    usleep(2000);
  }
  std::string output = process.Output();
  if (process.exit_code() != 0)
    throw ConfigError(fmt::format("[launch] {}: failed: got exit code {} and the output {}",
                                  argv[0], process.exit_code(), Quote(output)));
  return output;
}

}  // namespace carole::launch
