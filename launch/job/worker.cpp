// RunWorker() of job.h: the part of every task that is not the chief. It serves sshd and waits for
// the end of the job. The head of chief.cpp explains the protocol.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

#include "launch/cluster/message_text.h"
#include "launch/job/job.h"
#include "launch/job/process.h"
#include "launch/job/ssh.h"
#include "launch/job/worker_session.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/stopwatch.h"
#include "src/core/text/parse_number.h"

namespace carole::launch {
namespace {

constexpr int kWorkerPollMs = 200;
constexpr const char* kPortIsTaken = "Bind to port";  // part of sshd's error message

// Returns the variables ("NAME=VALUE") of this process that ranks on this host need. The chief
// cannot know them, so sshd gives them to the sessions that start ranks.
std::vector<std::string> RankEnvironment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    for (const std::string_view prefix : {"PATH=", "LD_LIBRARY_PATH=", "XDG_CACHE_HOME=", "CAROLE_",
                                          "OMP_", "OMPI_", "NCCL_", "CUDA_", "NVIDIA_"}) {
      if (text.starts_with(prefix)) variables.emplace_back(text);
    }
  }
  return variables;
}

// Waits until the chief has created the shared key. Returns a termination signal if one came first.
// Throws CommError after `seconds`.
std::optional<int> WaitForKey(const std::filesystem::path& path, BlockedSignals& signals,
                              double seconds) {
  const double end = SteadySeconds() + seconds;
  while (!std::filesystem::exists(path)) {
    if (SteadySeconds() > end)
      throw CommError(
          fmt::format("[launch] {}: the chief has not created the job's key within {:g} s; check "
                      "that {} is a folder that all hosts share",
                      path.string(), seconds, Option("work_dir")));
    if (const auto signal = signals.Wait(kWorkerPollMs); signal && IsTerminationSignal(*signal))
      return signal;
  }
  return std::nullopt;
}

// Returns the exit code that the chief has sent, or nullopt if the file is missing, empty or
// incomplete.
std::optional<int> ReadExitCode(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || file.eof()) return std::nullopt;  // at eof there is no '\n' yet
  return ParseNumber<int>(line);
}

// Returns whether a session is open, that is, whether sshd has a child process. If the kernel does
// not list children, returns true.
bool HasSession(pid_t sshd) {
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", sshd));
  std::string children;
  return !file.is_open() || static_cast<bool>(file >> children);
}

class Worker {
 public:
  Worker(const Task& me, const JobOptions& options) : me_(me), options_(options) {}
  int Run();

 private:
  // Starts sshd. Returns a termination signal if one came before there was a key.
  std::optional<int> Start();
  [[noreturn]] void ThrowSshdError();
  void LogSshdOutput();

  const Task& me_;
  const JobOptions& options_;
  BlockedSignals signals_;
  PrivateFolder folder_;
  std::optional<Process> sshd_;
  size_t num_logged_ = 0;  // bytes of sshd's output that were logged
};

std::optional<int> Worker::Start() {
  const std::string user = UserName();  // before ssh-keygen, which also needs a user name
  const bool is_mounted = !options_.ssh_key.empty();
  const std::filesystem::path key =
      is_mounted ? std::filesystem::path(options_.ssh_key) : SharedKeyPath(options_.work_dir);
  if (!is_mounted) {
    if (const auto signal = WaitForKey(key, signals_, options_.start_timeout)) return signal;
  }
  const std::string public_key = InstallPrivateKey(key, is_mounted, folder_);
  WritePrivateFile(folder_ / "authorized_keys", AuthorizedKeys(public_key));
  WritePrivateFile(folder_ / "sshd_config", SshdConfig(me_.port, user, folder_, RankEnvironment()));
  if (geteuid() == 0) mkdir("/run/sshd", 0755);  // sshd requires this empty folder; it may exist
  const std::string sshd = FindProgram("sshd", "openssh-server");
  sshd_.emplace(
      Process::Options{.argv = {sshd, "-D", "-e", "-f", folder_ / "sshd_config"}, .pipes = true});
  LogInfo("launch", "{}: serving sshd on port {}; waiting for the chief to finish the job",
          TaskName(me_), me_.port);
  return std::nullopt;
}

void Worker::ThrowSshdError() {
  const bool is_taken = sshd_->Output().find(kPortIsTaken) != std::string::npos;
  throw ConfigError(fmt::format(
      "[launch] sshd: cannot serve {} on port {}: {}{}", TaskName(me_), me_.port,
      Quote(sshd_->Output()), is_taken ? "; free the port that TF_CONFIG gives to this task" : ""));
}

// Logs new whole lines of sshd's output, which otherwise nobody would see.
void Worker::LogSshdOutput() {
  const std::string& output = sshd_->Output();
  for (size_t end; (end = output.find('\n', num_logged_)) != std::string::npos;
       num_logged_ = end + 1)
    LogWarning("launch", "sshd: {}", Quote(output.substr(num_logged_, end - num_logged_)));
}

int Worker::Run() {
  if (const auto signal = Start()) return 128 + *signal;
  double last_session = SteadySeconds();
  int stop_signal = 0;
  double end = 0;  // when to give up after stop_signal
  for (;;) {
    if (const auto signal = signals_.Wait(kWorkerPollMs); signal && IsTerminationSignal(*signal)) {
      if (stop_signal != 0 || !HasSession(sshd_->pid())) return 128 + *signal;
      // The platform may stop all hosts at once. Then the chief lets all ranks save, and those of
      // this host need its sshd until then.
      LogInfo("launch", "asked to stop: waiting up to {:g} s for the chief to end the job",
              options_.grace_seconds);
      stop_signal = *signal;
      end = SteadySeconds() + options_.grace_seconds;
    }
    if (stop_signal != 0 && SteadySeconds() > end) return 128 + stop_signal;
    // If the port is taken for IPv4 or IPv6 only, sshd does not exit but serves the other one.
    const bool is_taken = sshd_->Output().find(kPortIsTaken) != std::string::npos;
    if (is_taken || !sshd_->IsRunning()) ThrowSshdError();
    LogSshdOutput();
    // Checked before the exit code is read, which the last session may have sent.
    const bool has_session = HasSession(sshd_->pid());
    if (const auto code = ReadExitCode(folder_ / kEndFile)) {
      sshd_->Signal(SIGTERM);
      LogInfo("launch", "the chief says that the job ended with exit code {}", *code);
      return *code;
    }
    if (has_session) last_session = SteadySeconds();
    if (stop_signal != 0 && !has_session) return 128 + stop_signal;
    if (SteadySeconds() - last_session > options_.start_timeout)
      throw CommError(fmt::format(
          "[launch] {}: no session with the chief for {:g} s; check that carole launch runs on the "
          "chief's host and can reach port {} here",
          TaskName(me_), options_.start_timeout, me_.port));
  }
}

}  // namespace

int RunWorker(const Task& me, const JobOptions& options) { return Worker(me, options).Run(); }

}  // namespace carole::launch
