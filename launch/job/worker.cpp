// Serve() of job.h: a task's own sshd.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

#include "launch/cluster/text.h"
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

constexpr int kPollMs = 200;
constexpr const char* kPortIsTaken = "Bind to port";  // sshd's word

// What a rank on this machine needs of this process's environment, as the chief cannot know it.
std::vector<std::string> RanksEnvironment() {
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

// The chief makes the shared key; until then there is none. Returns the signal that ends the wait.
std::optional<int> AwaitKey(const std::filesystem::path& path, Signals& signals, double seconds) {
  const double end = SteadySeconds() + seconds;
  while (!std::filesystem::exists(path)) {
    if (SteadySeconds() > end)
      throw CommError(
          fmt::format("[launch] {}: the chief has not made the job's key in {:g} s; is "
                      "--work_dir one folder that all machines share?",
                      path.string(), seconds));
    if (const auto signal = signals.Wait(kPollMs); signal && AsksToEnd(*signal)) return signal;
  }
  return std::nullopt;
}

// The exit code that the chief has written, once its line is whole.
std::optional<int> ReadEnd(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || file.eof()) return std::nullopt;  // eof: no '\n' yet
  return ParseNumber<int>(line);
}

// Whether a session is open; a kernel that does not list children counts as one.
bool HasSession(pid_t sshd) {
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", sshd));
  std::string children;
  return !file.is_open() || static_cast<bool>(file >> children);
}

class Server {
 public:
  Server(const Task& me, const JobOptions& options) : me_(me), options_(options) {}
  int Run();

 private:
  // Returns the signal that came before there was a key.
  std::optional<int> Start();
  [[noreturn]] void FailSshd();
  void PassOnSshdsWords();

  const Task& me_;
  const JobOptions& options_;
  Signals signals_;
  PrivateFolder folder_;
  std::optional<Process> sshd_;
  size_t passed_on_ = 0;  // bytes of its output
};

std::optional<int> Server::Start() {
  const std::string user = UserName();  // before ssh-keygen, which wants one too
  const bool is_secret = !options_.ssh_key.empty();
  const std::filesystem::path key =
      is_secret ? std::filesystem::path(options_.ssh_key) : SharedKeyPath(options_.work_dir);
  if (!is_secret) {
    if (const auto signal = AwaitKey(key, signals_, options_.start_timeout)) return signal;
  }
  const std::string public_key = TakeKey(key, is_secret, folder_);
  WritePrivateFile(folder_ / "authorized_keys", AuthorizedKeys(public_key));
  WritePrivateFile(folder_ / "sshd_config",
                   SshdConfig(me_.port, user, folder_, RanksEnvironment()));
  if (geteuid() == 0) mkdir("/run/sshd", 0755);  // sshd's empty folder; there is one already
  const std::string sshd = FindProgram("sshd", "openssh-server");
  sshd_.emplace(
      Process::Options{.words = {sshd, "-D", "-e", "-f", folder_ / "sshd_config"}, .pipes = true});
  LogInfo("launch", "{} lets the chief in on port {} and waits for its end", TaskName(me_),
          me_.port);
  return std::nullopt;
}

void Server::FailSshd() {
  const bool is_taken = sshd_->Output().find(kPortIsTaken) != std::string::npos;
  throw ConfigError(
      fmt::format("[launch] sshd: cannot serve {} on port {}: {}{}", TaskName(me_), me_.port,
                  Quote(sshd_->Output()),
                  is_taken ? "; want the port that TF_CONFIG gives this task to be free" : ""));
}

// Its errors would else be seen by nobody. Whole lines only.
void Server::PassOnSshdsWords() {
  const std::string& output = sshd_->Output();
  for (size_t end; (end = output.find('\n', passed_on_)) != std::string::npos; passed_on_ = end + 1)
    LogWarning("launch", "sshd: {}", Quote(output.substr(passed_on_, end - passed_on_)));
}

int Server::Run() {
  if (const auto signal = Start()) return 128 + *signal;
  double last_session = SteadySeconds();
  int stop_signal = 0;
  double end = 0;  // then
  for (;;) {
    if (const auto signal = signals_.Wait(kPollMs); signal && AsksToEnd(*signal)) {
      if (stop_signal != 0 || !HasSession(sshd_->pid())) return 128 + *signal;
      // Where the platform stops all machines the chief lets all ranks save, these among them.
      LogInfo("launch", "asked to stop: waiting up to {:g} s for the chief to end the job",
              options_.grace_seconds);
      stop_signal = *signal;
      end = SteadySeconds() + options_.grace_seconds;
    }
    if (stop_signal != 0 && SteadySeconds() > end) return 128 + stop_signal;
    // It goes on with the other address family when the port of one is taken.
    const bool is_taken = sshd_->Output().find(kPortIsTaken) != std::string::npos;
    if (is_taken || !sshd_->Running()) FailSshd();
    PassOnSshdsWords();
    const bool has_session = HasSession(sshd_->pid());  // before the end that one may have told
    if (const auto code = ReadEnd(folder_ / kEndFile)) {
      sshd_->Signal(SIGTERM);
      LogInfo("launch", "the chief says that the job ended with exit code {}", *code);
      return *code;
    }
    if (has_session) last_session = SteadySeconds();
    if (stop_signal != 0 && !has_session) return 128 + stop_signal;
    if (SteadySeconds() - last_session > options_.start_timeout)
      throw CommError(
          fmt::format("[launch] job: no chief for {:g} s at {} port {}; is its "
                      "carole launch running, and can it reach this port?",
                      options_.start_timeout, TaskName(me_), me_.port));
  }
}

}  // namespace

int Serve(const Task& me, const JobOptions& options) { return Server(me, options).Run(); }

}  // namespace carole::launch
