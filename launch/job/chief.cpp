// RunChief() of job.h: waits for the tasks, runs mpirun, again after a loss.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "launch/job/job.h"
#include "launch/job/job_end.h"
#include "launch/job/mpirun.h"
#include "launch/job/process.h"
#include "launch/job/ssh.h"
#include "launch/job/worker_session.h"
#include "src/core/error.h"
#include "src/core/files/open_files.h"
#include "src/core/log.h"
#include "src/core/stopwatch.h"
#include "src/core/text/join_names.h"

namespace carole::launch {
namespace {

constexpr double kProgressSeconds = 10;
constexpr double kFarewellSeconds = 30;
constexpr double kLateSeconds = 10;
constexpr int kPollMs = 100;

std::vector<std::string> ExportedVariables() {
  std::vector<std::string> names;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    for (const std::string_view prefix : {"CAROLE_", "OMP_", "NCCL_"}) {
      if (text.starts_with(prefix)) names.emplace_back(text.substr(0, text.find('=')));
    }
  }
  return names;
}

class Chief {
 public:
  Chief(const Cluster& cluster, const JobOptions& options);
  int Run();

 private:
  bool IsHost(const Task& task) const;
  void PollLeashes();
  std::vector<std::string> Missing() const;
  Cluster Present() const;
  bool Gather(double seconds);
  int RunMpirun(const Cluster& cluster);
  void Handle(int signal, Process& mpirun);
  void TellLateTasks(int exit_code);
  void TellTheEnd(int exit_code);

  const Cluster& cluster_;
  const JobOptions& options_;
  Signals signals_;
  PrivateFolder folder_;
  std::string ssh_;  // "": nobody else to reach
  struct Held {
    std::unique_ptr<WorkerSession> session;
    bool holds = false;
  };
  std::vector<Held> others_;
  int stop_signal_ = 0;      // the first that asked to end; before, the last that asked to save
  double kill_time_ = 1e30;  // when mpirun gets SIGTERM
};

Chief::Chief(const Cluster& cluster, const JobOptions& options)
    : cluster_(cluster), options_(options) {
  AllowOpenFiles(2 * cluster.tasks.size());  // a session's pipes
  for (const Task& task : cluster.tasks) {
    if (!IsHeld(task, options)) continue;
    if (ssh_.empty()) ssh_ = FindProgram("ssh", "openssh-client");
    others_.push_back({std::make_unique<WorkerSession>(ssh_, folder_ / "ssh_config", task)});
  }
  if (others_.empty()) return;
  const std::string user = UserName();  // before ssh-keygen, which wants one too
  const bool is_secret = !options.ssh_key.empty();
  if (!is_secret) MakeSharedKey(SharedKeyPath(options.work_dir));
  const std::string public_key = TakeKey(
      is_secret ? options.ssh_key : SharedKeyPath(options.work_dir).string(), is_secret, folder_);
  WritePrivateFile(folder_ / "known_hosts", KnownHosts(public_key));
  WritePrivateFile(folder_ / "ssh_config", JobSshConfig(cluster, user, folder_));
}

// Whether mpirun starts a daemon through this task's sshd.
bool Chief::IsHost(const Task& task) const {
  return std::any_of(cluster_.hosts.begin(), cluster_.hosts.end(), [&](const Host& host) {
    return host.first_rank > 0 && host.first_rank == task.rank;
  });
}

void Chief::PollLeashes() {
  for (Held& other : others_) other.holds = other.session->Poll();
}

std::vector<std::string> Chief::Missing() const {
  std::vector<std::string> missing;
  for (const Held& other : others_) {
    const Task& task = other.session->task();
    if (!other.holds && IsHost(task))
      missing.push_back(fmt::format("{} ({} port {}: {})", TaskName(task), task.host, task.port,
                                    other.session->problem()));
  }
  return missing;
}

// The cluster without the machines that are missing.
Cluster Chief::Present() const {
  Cluster present = cluster_;
  std::erase_if(present.hosts, [&](const Host& host) {
    return std::any_of(others_.begin(), others_.end(), [&](const Held& other) {
      return !other.holds && IsHost(other.session->task()) &&
             other.session->task().rank == host.first_rank;
    });
  });
  for (size_t h = 1; h < present.hosts.size(); ++h)
    present.hosts[h].first_rank = present.hosts[h - 1].first_rank + present.hosts[h - 1].slots;
  return present;
}

// Waits until every machine is there; false when a signal came first.
bool Chief::Gather(double seconds) {
  const double start = SteadySeconds();
  for (double next_report = start + kProgressSeconds;;) {
    PollLeashes();
    const std::vector<std::string> missing = Missing();
    if (missing.empty()) return true;
    const double now = SteadySeconds();
    if (now - start > seconds) {
      const auto present = static_cast<int>(cluster_.hosts.size() - missing.size());
      if (options_.min_hosts > 0 && present >= options_.min_hosts) {
        LogWarning("launch", "going on with {} of {} machines, without {}", present,
                   cluster_.hosts.size(), JoinTexts(missing));
        return true;
      }
      throw CommError(
          fmt::format("[launch] job: machines have not come in {:g} s: got {} of {}, "
                      "without {}; start carole launch there, open its port, or raise "
                      "--start_timeout (after a loss --restart_timeout, or lower --min_hosts)",
                      seconds, present, cluster_.hosts.size(), JoinTexts(missing)));
    }
    if (now > next_report) {
      LogInfo("launch", "waiting since {:.0f} s for {}", now - start, JoinTexts(missing));
      next_report += kProgressSeconds;
    }
    if (const auto signal = signals_.Wait(kPollMs); signal && *signal != SIGUSR2) {
      stop_signal_ = *signal;
      return false;
    }
  }
}

// The first request to stop lets the ranks save; a second one, or the time, ends them.
void Chief::Handle(int signal, Process& mpirun) {
  const bool was_asked = AsksToEnd(stop_signal_), asks_to_save = AsksToEnd(signal) && !was_asked;
  if (signal != SIGUSR2 && !was_asked) stop_signal_ = signal;
  if (asks_to_save) {
    LogInfo("launch", "asked to stop: the ranks save, and have {:g} s", options_.grace_seconds);
    kill_time_ = SteadySeconds() + options_.grace_seconds;
  }
  mpirun.Signal(asks_to_save ? SIGUSR1 : signal);
}

int Chief::RunMpirun(const Cluster& cluster) {
  const std::string ranks_end = folder_ / "ranks_end";
  std::filesystem::remove(ranks_end);
  setenv(kRanksEnd, ranks_end.c_str(), 1);
  WritePrivateFile(folder_ / "hostfile", JobHostfile(cluster));
  const std::vector<std::string> words =
      MpirunWords({.mpirun = FindProgram("mpirun", "openmpi-bin"),
                   .hostfile = folder_ / "hostfile",
                   .ssh = cluster.hosts.size() > 1 ? ssh_ : "",
                   .ssh_config = folder_ / "ssh_config",
                   .ranks = cluster.size(),
                   .is_root = geteuid() == 0,
                   .network = options_.network,
                   .ports = options_.ports,
                   .exported = ExportedVariables(),
                   .command = options_.command});
  LogInfo("launch", "{} ranks on {} machines: {}", cluster.size(), cluster.hosts.size(),
          JoinTexts(words, " "));
  Process mpirun({.words = words});
  while (mpirun.Running()) {
    PollLeashes();
    if (const auto signal = signals_.Wait(kPollMs)) Handle(*signal, mpirun);
    if (SteadySeconds() > kill_time_) {
      kill_time_ = 1e30;
      mpirun.Signal(SIGTERM);
    }
  }
  const int code = mpirun.exit_code();
  // Open MPI 5 ends with 0 where it has lost a machine, too.
  return code == 0 && !std::filesystem::exists(ranks_end) ? kLostDaemon : code;
}

// They share their machine with others, so they were not waited for, and may come when a short job
// is over.
void Chief::TellLateTasks(int exit_code) {
  const double end = SteadySeconds() + kLateSeconds;
  const auto is_late = [this](const Held& other) {
    return !other.holds && !IsHost(other.session->task());
  };
  while (std::ranges::any_of(others_, is_late) && SteadySeconds() < end) {
    const auto signal = signals_.Wait(kPollMs);
    if (signal && AsksToEnd(*signal)) return;
    for (Held& other : others_) {
      if (!is_late(other)) continue;
      other.holds = other.session->Poll();
      if (other.holds) other.session->End(exit_code);
    }
  }
}

void Chief::TellTheEnd(int exit_code) {
  if (!options_.train_dir.empty()) NoteJobEnd(options_.train_dir, exit_code);
  for (Held& other : others_) other.session->End(exit_code);
  TellLateTasks(exit_code);
  const double end = SteadySeconds() + kFarewellSeconds;
  for (Held& other : others_) {
    while (other.holds && !other.session->Gone() && SteadySeconds() < end) {
      const auto signal = signals_.Wait(kPollMs);
      if (signal && AsksToEnd(*signal)) return;
    }
  }
}

int Chief::Run() {
  int code = 0;
  try {
    for (int restarts = 0;; ++restarts) {
      if (!Gather(restarts == 0 ? options_.start_timeout : options_.restart_timeout)) {
        code = 128 + stop_signal_;
        break;
      }
      code = RunMpirun(Present());
      if (stop_signal_ != 0 || !IsWorthRestarting(code) || restarts == options_.max_restarts) break;
      LogWarning("launch",
                 "training ended with exit code {}: a machine or a rank was lost; restart "
                 "{} of {} from the last checkpoint",
                 code, restarts + 1, options_.max_restarts);
      // Sessions to a dead machine look alive for a while: all are made anew.
      for (Held& other : others_)
        other = {
            std::make_unique<WorkerSession>(ssh_, folder_ / "ssh_config", other.session->task())};
    }
  } catch (const Error& error) {
    TellTheEnd(static_cast<int>(error.code()));
    throw;
  }
  TellTheEnd(JobExitCode(code));
  return JobExitCode(code);
}

}  // namespace

bool IsHeld(const Task& task, const JobOptions& options) {
  const bool stays = Trains(task) || (task.role == Role::kParameterServer && options.ends_ps);
  return stays && task.rank != 0 && task.port != 0;
}

int RunChief(const Cluster& cluster, const JobOptions& options) {
  return Chief(cluster, options).Run();
}

}  // namespace carole::launch
