// RunChief() of job.h, and the protocol between the tasks of a job.
//
// The problem. A cloud platform starts the same program once per task, each in a container of its
// own, with a TF_CONFIG that names all tasks. mpirun works the other way round. It is started once,
// and it starts the ranks itself on hosts that it can reach by ssh. Also, every container
// should exit with the exit code of the job, but only one of them runs mpirun. This one is the
// container of the chief. The other containers must serve sshd, stay until the job is over, and
// then exit with the exit code of the job.
//
// Parts. An example job: chief on h0:2222, worker 0 on h1:2222, worker 1 on h2:2222.
//
//   h0: carole launch (RunChief)           h1, h2: carole launch (RunWorker)
//        |-- ssh task+worker-0  ------------>  sshd on port 2222 --- cat >end     (WorkerSession)
//        |-- ssh task+worker-1  ------------>  the same on h2
//        `-- mpirun -n 3 carole train
//             |-- rank 0
//             |-- ssh h1  ------------------>  sshd --- daemon of mpirun --- rank 1
//             `-- ssh h2  ------------------>  the same on h2, with rank 2
//
// The chief keeps one ssh session with every other training task from start to end (and with every
// parameter server, if these stay until the end). A session runs `echo "carole: ready"; exec cat
// >end`. It has three uses. Its first line shows that the sshd of the task is ready. While the
// session is open, both sides are alive. At the end, the chief sends the exit code of the job
// through it into the file that the task waits for. ssh.cpp explains the keys.
//
// Phases.
//   1. Start. The chief creates the key of the job. The other tasks wait for the key and start
//      sshd. The chief tries each session once per second. On every host it needs the task through
//      which mpirun starts its daemon: the first training task of the host. If hosts are missing
//      after start_timeout (600 s), the job continues without them if at least min_hosts are there.
//      Otherwise it ends with 69.
//   2. Run. The chief starts mpirun. Every 100 ms it checks mpirun, the sessions and its own
//      signals.
//   3. Restart. If the exit code of mpirun says that a host or a rank was lost
//      (IsWorthRestarting()), the chief goes back to phase 1, at most max_restarts times, with
//      restart_timeout (60 s). If min_hosts is not given, one host fewer than in the last run is
//      enough now. The ranks resume from the last checkpoint, usually that of the survivors
//      (src/train/survival/guardian.cpp). Without a lost host they are numbered again, for example
//      0 on h0 and 1 on h2, but the hosts keep their aliases. Each restart tries all hosts, so a
//      host that is back takes part again.
//   4. End. The chief writes the job-end marker for an evaluator, sends the exit code through all
//      sessions, and waits up to 30 s until they are closed. Then all tasks exit with the same
//      code.
//
// Each side notices the end of another one in its own way.
//   - The host of a worker: mpirun notices the silent connection after 8 s and exits with 205. If a
//     rank notices its lost peer first, the code is 69. Phase 3 follows. ssh would notice only
//     after 15 s, so sessions with a dead host still look open. This is why phase 3 starts all
//     sessions anew.
//   - A rank: if it was killed (137), phase 3 follows. If it failed by itself, for example because
//     of bad data (65), it would most likely fail again. Then phase 4 follows, and all tasks exit
//     with its code.
//   - The chief: its ssh processes and its mpirun get SIGTERM (see Process). The sessions end, and
//     the files `end` stay empty. A worker exits with 69 after start_timeout without a session. If
//     the platform starts the chief again before that, the new chief opens new sessions.
//
// Stopping. A platform sends SIGTERM before it removes a container. mpirun would react to SIGTERM
// by killing its ranks. So on the first SIGTERM, SIGINT or SIGHUP, the chief sends SIGUSR1 to
// mpirun instead. The ranks agree to save and exit with 75, and phase 4 follows. After
// grace_seconds (25 s) mpirun gets SIGTERM; a second request to stop reaches it at once. A platform
// may stop all containers at the same time. So a worker that is asked to stop keeps serving sshd
// for grace_seconds while it has a session. If it left at once, its ranks could not save.
//
// Two cases need more than the exit code of mpirun. First, mpirun of Open MPI 5 may exit with 0
// although it has lost a host. So rank 0 confirms success with a file (end_markers.h). Second,
// tasks that phase 1 does not wait for may still be starting when a short job is over. So phase 4
// gives them 10 s to connect.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "launch/job/end_markers.h"
#include "launch/job/job.h"
#include "launch/job/mpirun.h"
#include "launch/job/process.h"
#include "launch/job/ssh.h"
#include "launch/job/worker_session.h"
#include "src/core/error.h"
#include "src/core/files/open_file_limit.h"
#include "src/core/log.h"
#include "src/core/stopwatch.h"
#include "src/core/text/join_names.h"

namespace carole::launch {
namespace {

constexpr double kProgressSeconds = 10;
constexpr double kCloseSeconds = 30;  // for sessions to close after the exit code was sent
constexpr double kLateTaskSeconds = 10;
constexpr int kChiefPollMs = 100;

// Returns the names of the variables that all ranks get from the chief.
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

// `is_restart`: the hosts had been connected before one of them was lost.
std::string AdviceOnMissingHosts(bool is_restart) {
  if (!is_restart) {
    return fmt::format("start carole launch there, open its port, or raise {}",
                       Option("start_timeout"));
  }
  return fmt::format(
      "start carole launch there again, raise {}, or continue with fewer hosts by {}",
      Option("restart_timeout"), Option("min_hosts"));
}

class Chief {
 public:
  Chief(const Cluster& cluster, const JobOptions& options);
  int Run();

 private:
  // Another task of the job and the session with it.
  struct Worker {
    std::unique_ptr<WorkerSession> session;
    bool is_connected = false;
  };

  bool RunsDaemon(const Task& task) const;
  void PollSessions();
  std::vector<std::string> DescribeMissingHosts() const;
  Cluster ConnectedCluster() const;
  std::vector<std::string> CommandFor(int ranks) const;
  void DropHostsThatDoNotFit(Cluster& cluster) const;
  int FewestHosts() const;
  void LogRestart() const;
  bool WaitForHosts(bool is_restart);
  int RunMpirun(const Cluster& cluster);
  void HandleSignal(int signal, Process& mpirun);
  void SendExitCodeToLateTasks(int exit_code);
  void EndJob(int exit_code);

  const Cluster& cluster_;
  const JobOptions& options_;
  BlockedSignals signals_;
  PrivateFolder folder_;
  std::string ssh_;  // path of the program; "": there are no other tasks
  std::vector<Worker> workers_;
  // The first termination signal; until one comes, the last SIGUSR1 (a request to save); 0: none.
  int stop_signal_ = 0;
  int last_hosts_ = 0;       // number of hosts of the last mpirun; 0: none was started
  double kill_time_ = 1e30;  // when mpirun gets SIGTERM, in seconds of the steady clock
};

Chief::Chief(const Cluster& cluster, const JobOptions& options)
    : cluster_(cluster), options_(options) {
  RaiseOpenFileLimit(2 * cluster.tasks.size());  // each session has two pipes
  for (const Task& task : cluster.tasks) {
    if (!NeedsWorkerSession(task, options)) continue;
    if (ssh_.empty()) ssh_ = FindProgram("ssh", "openssh-client");
    workers_.push_back({std::make_unique<WorkerSession>(ssh_, folder_ / "ssh_config", task)});
  }
  if (workers_.empty()) return;
  const std::string user = UserName();  // before ssh-keygen, which also needs a user name
  const bool is_mounted = !options.ssh_key.empty();
  if (!is_mounted) MakeSharedKey(SharedKeyPath(options.work_dir));
  const std::string public_key = InstallPrivateKey(
      is_mounted ? options.ssh_key : SharedKeyPath(options.work_dir).string(), is_mounted, folder_);
  WritePrivateFile(folder_ / "known_hosts", KnownHosts(public_key));
  WritePrivateFile(folder_ / "ssh_config", JobSshConfig(cluster, user, folder_));
}

// Returns whether mpirun starts the daemon of the task's host through the sshd of this task.
bool Chief::RunsDaemon(const Task& task) const {
  return std::any_of(cluster_.hosts.begin(), cluster_.hosts.end(), [&](const Host& host) {
    return host.first_rank > 0 && host.first_rank == task.rank;
  });
}

void Chief::PollSessions() {
  for (Worker& worker : workers_) worker.is_connected = worker.session->Poll();
}

std::vector<std::string> Chief::DescribeMissingHosts() const {
  std::vector<std::string> missing;
  for (const Worker& worker : workers_) {
    const Task& task = worker.session->task();
    if (!worker.is_connected && RunsDaemon(task))
      missing.push_back(fmt::format("{} ({} port {}: {})", TaskName(task), task.host, task.port,
                                    worker.session->problem()));
  }
  return missing;
}

// Returns the cluster without the missing hosts, with ranks numbered again.
Cluster Chief::ConnectedCluster() const {
  Cluster connected = cluster_;
  std::erase_if(connected.hosts, [&](const Host& host) {
    return std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
      return !worker.is_connected && RunsDaemon(worker.session->task()) &&
             worker.session->task().rank == host.first_rank;
    });
  });
  for (size_t h = 1; h < connected.hosts.size(); ++h)
    connected.hosts[h].first_rank =
        connected.hosts[h - 1].first_rank + connected.hosts[h - 1].slots;
  return connected;
}

std::vector<std::string> Chief::CommandFor(int ranks) const {
  return ranks == cluster_.size() || !options_.command_for ? options_.command
                                                           : options_.command_for(ranks);
}

// Some numbers of ranks cannot train: reproducible training needs a power of two.
void Chief::DropHostsThatDoNotFit(Cluster& cluster) const {
  while (cluster.hosts.size() > 1 && CommandFor(cluster.size()).empty()) {
    LogWarning("launch", "{} ranks cannot share the global batch: continuing without {}",
               cluster.size(), cluster.hosts.back().alias);
    cluster.hosts.pop_back();
  }
}

// Returns the number of hosts that are enough once the time to wait is over. A job does not start
// with fewer hosts than its user has asked for. But after a loss it need not wait for a person.
int Chief::FewestHosts() const {
  if (options_.min_hosts > 0) return options_.min_hosts;
  return last_hosts_ > 0 ? std::max(1, last_hosts_ - 1) : static_cast<int>(cluster_.hosts.size());
}

void Chief::LogRestart() const {
  const std::string checkpoint = options_.newest_checkpoint ? options_.newest_checkpoint() : "";
  LogInfo("launch", "restart: {}",
          checkpoint.empty() ? "no checkpoint was saved, so the ranks start from the beginning"
                             : "the ranks go on from " + checkpoint);
}

// Waits until every host is connected, or after the timeout enough of them (min_hosts). Returns
// false if a signal came first. Throws CommError if there are not enough.
bool Chief::WaitForHosts(bool is_restart) {
  const double seconds = is_restart ? options_.restart_timeout : options_.start_timeout;
  const double start = SteadySeconds();
  for (double next_report = start + kProgressSeconds;;) {
    PollSessions();
    const std::vector<std::string> missing = DescribeMissingHosts();
    if (missing.empty()) return true;
    const double now = SteadySeconds();
    if (now - start > seconds) {
      const auto num_connected = static_cast<int>(cluster_.hosts.size() - missing.size());
      if (num_connected >= FewestHosts()) {
        LogWarning("launch", "continuing with {} of {} hosts, without {}", num_connected,
                   cluster_.hosts.size(), JoinTexts(missing));
        return true;
      }
      throw CommError(fmt::format(
          "[launch] job: hosts did not connect within {:g} s: got {} of {}, without {}; {}",
          seconds, num_connected, cluster_.hosts.size(), JoinTexts(missing),
          AdviceOnMissingHosts(is_restart)));
    }
    if (now > next_report) {
      LogInfo("launch", "waited {:.0f} s so far for {}", now - start, JoinTexts(missing));
      next_report += kProgressSeconds;
    }
    if (const auto signal = signals_.Wait(kChiefPollMs); signal && *signal != SIGUSR2) {
      stop_signal_ = *signal;
      return false;
    }
  }
}

// Asks the ranks to save on the first termination signal and starts the grace period. Passes all
// other signals to mpirun, also a second termination signal.
void Chief::HandleSignal(int signal, Process& mpirun) {
  const bool was_asked = IsTerminationSignal(stop_signal_),
             asks_to_save = IsTerminationSignal(signal) && !was_asked;
  if (signal != SIGUSR2 && !was_asked) stop_signal_ = signal;
  if (asks_to_save) {
    LogInfo("launch", "asked to stop: the ranks have {:g} s to save", options_.grace_seconds);
    kill_time_ = SteadySeconds() + options_.grace_seconds;
  }
  mpirun.Signal(asks_to_save ? SIGUSR1 : signal);
}

int Chief::RunMpirun(const Cluster& cluster) {
  const std::string ranks_end = folder_ / "ranks_end";
  std::filesystem::remove(ranks_end);
  setenv(kRanksEndVariable, ranks_end.c_str(), 1);
  setenv(kGraceVariable, fmt::format("{}", options_.grace_seconds).c_str(), 1);
  WritePrivateFile(folder_ / "hostfile", JobHostfile(cluster));
  const std::vector<std::string> argv =
      MpirunCommand({.mpirun = FindProgram("mpirun", "openmpi-bin"),
                     .hostfile = folder_ / "hostfile",
                     .ssh = cluster.hosts.size() > 1 ? ssh_ : "",
                     .ssh_config = folder_ / "ssh_config",
                     .ranks = cluster.size(),
                     .is_root = geteuid() == 0,
                     .network = options_.network,
                     .ports = options_.ports,
                     .exported = ExportedVariables(),
                     .command = CommandFor(cluster.size())});
  LogInfo("launch", "{} ranks on {} hosts: {}", cluster.size(), cluster.hosts.size(),
          JoinTexts(argv, " "));
  Process mpirun({.argv = argv});
  while (mpirun.IsRunning()) {
    PollSessions();
    if (const auto signal = signals_.Wait(kChiefPollMs)) HandleSignal(*signal, mpirun);
    if (SteadySeconds() > kill_time_) {
      kill_time_ = 1e30;
      mpirun.Signal(SIGTERM);
    }
  }
  const int code = mpirun.exit_code();
  // mpirun of Open MPI 5 may exit with 0 although a host was lost.
  return code == 0 && !std::filesystem::exists(ranks_end) ? kLostDaemon : code;
}

// Gives tasks that WaitForHosts() does not wait for some time to connect, and sends them the exit
// code. They run no daemon (RunsDaemon()), so a short job may be over before they have started.
void Chief::SendExitCodeToLateTasks(int exit_code) {
  const double end = SteadySeconds() + kLateTaskSeconds;
  const auto is_late = [this](const Worker& worker) {
    return !worker.is_connected && !RunsDaemon(worker.session->task());
  };
  while (std::ranges::any_of(workers_, is_late) && SteadySeconds() < end) {
    const auto signal = signals_.Wait(kChiefPollMs);
    if (signal && IsTerminationSignal(*signal)) return;
    for (Worker& worker : workers_) {
      if (!is_late(worker)) continue;
      worker.is_connected = worker.session->Poll();
      if (worker.is_connected) worker.session->SendExitCode(exit_code);
    }
  }
}

// Sends the exit code to all tasks and waits until they have got it.
void Chief::EndJob(int exit_code) {
  if (!options_.train_dir.empty()) WriteJobEndMarker(options_.train_dir, exit_code);
  for (Worker& worker : workers_) worker.session->SendExitCode(exit_code);
  SendExitCodeToLateTasks(exit_code);
  const double end = SteadySeconds() + kCloseSeconds;
  for (Worker& worker : workers_) {
    while (worker.is_connected && !worker.session->IsClosed() && SteadySeconds() < end) {
      const auto signal = signals_.Wait(kChiefPollMs);
      if (signal && IsTerminationSignal(*signal)) return;
    }
  }
}

int Chief::Run() {
  int code = 0;
  try {
    for (int restarts = 0;; ++restarts) {
      if (!WaitForHosts(restarts > 0)) {
        code = 128 + stop_signal_;
        break;
      }
      if (restarts > 0) LogRestart();
      Cluster connected = ConnectedCluster();
      DropHostsThatDoNotFit(connected);
      last_hosts_ = static_cast<int>(connected.hosts.size());
      code = RunMpirun(connected);
      if (stop_signal_ != 0 || !IsWorthRestarting(code) || restarts == options_.max_restarts) break;
      LogWarning(
          "launch",
          "training ended with exit code {}: a host or a rank was lost; restart {} of {} from the "
          "last checkpoint",
          code, restarts + 1, options_.max_restarts);
      // Sessions to a dead host still look open for a while, so all are made new.
      for (Worker& worker : workers_)
        worker = {
            std::make_unique<WorkerSession>(ssh_, folder_ / "ssh_config", worker.session->task())};
    }
  } catch (const Error& error) {
    EndJob(static_cast<int>(error.code()));
    throw;
  }
  EndJob(JobExitCode(code));
  return JobExitCode(code);
}

}  // namespace

bool NeedsWorkerSession(const Task& task, const JobOptions& options) {
  const bool waits_for_end =
      IsTrainingTask(task) || (task.role == Role::kParameterServer && options.ps_waits_for_end);
  return waits_for_end && task.rank != 0 && task.port != 0;
}

int RunChief(const Cluster& cluster, const JobOptions& options) {
  return Chief(cluster, options).Run();
}

}  // namespace carole::launch
