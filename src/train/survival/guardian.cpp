// The guardian of a rank, and how the guardians of a job save its state.
//
// The problem. Every rank holds the whole state of the run. But when one rank dies, mpirun kills
// the others within a second or two, and all steps since the last checkpoint are lost. A rank that
// was killed cannot write a file, so another process must do it.
//
// Parts. Each rank forks a guardian before it starts MPI. Weights, slots, averages and statistics
// lie in shared memory from the start (SurvivingState), so keeping them costs nothing per step: no
// copy is made. The guardian sleeps in poll() on a socket to its rank. It is in a session of its
// own, so mpirun's signals to the process group of the rank do not reach it, and it ignores those
// that ask a process to end. It has closed all files of the rank except standard error.
//
//   rank ── shared memory (arenas, record, manifest) ── guardian
//     └──────────────── socket ────────────────────────────┘
//
// The end of a rank.
//   released      the run ended well: the guardian ends
//   failed, lost  the rank reports that another rank is lost, and waits: the guardian saves
//   failed        any other error, such as replicas that differ: void claim, nobody saves
//   socket closed the rank died: the guardian saves
//
// Saving. All replicas of a step are equal, so one whole state is enough. The guardians agree
// through small files in train_dir/.survivors (claims.h):
//   1. Each guardian claims (rank, step, whole or not). A rank that died in the middle of an update
//      has no whole state. Nor has one that died of SIGSEGV, SIGBUS, SIGILL, SIGFPE or SIGABRT: its
//      memory may be damaged.
//   2. It waits until all ranks have claimed, or until no new claim has come for kQuietSeconds.
//      Ranks notice a loss within milliseconds (CommError), or are killed by mpirun after 1 to 2 s.
//      The guardians of a lost host claim nothing.
//   3. The lowest rank with the newest whole state writes the checkpoint, with the ordinary writer.
//      The others wait for its result, so that their ranks, and with them the job, live that long.
//   4. A guardian that does not see train_dir, or whose disk fails there, uses a folder in
//      work_dir instead (FallbackFolder()). The guardians that use it agree in the same way. So if
//      the host with train_dir is lost, each other host keeps one checkpoint. A guardian that may
//      only read train_dir uses work_dir only if no other guardian saves in train_dir.
// If a guardian is late, its own decision may differ: it then writes a newer step, or it finds that
// the checkpoint of this step exists. Each checkpoint is complete and valid by itself.
//
// Example: 3 ranks, rank 1 is killed in backward of step 7, i.e. 7 updates are done.
//   0 ms   the guardian of rank 1 claims step 7
//   10 ms  ranks 0 and 2 report CommError; their guardians claim step 7 as well
//   60 ms  all three have claimed: rank 0's guardian writes model.ckpt-7.h5
//
// A frozen rank 0 keeps its lock until the job is aborted. So a guardian that waits for this lock
// lets its own rank go on first.
//
// Locks. Rank 0 holds the lock of train_dir, so its guardian and the others first wait until rank 0
// has ended or has released it. The next run must not start before they are done. So guardians hold
// a shared lock on .survivors/lock, and a new run takes it exclusively (LockForRun()). Rank 0's
// guardian holds it from the start, so that there is no gap. The system releases both locks if a
// process dies.
#include "src/train/survival/guardian.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "collectives/ranks/replica_check.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "src/core/error.h"
#include "src/core/host_name.h"
#include "src/core/log.h"
#include "src/core/stopwatch.h"
#include "src/train/survival/claims.h"

namespace carole::train {
namespace {

constexpr double kQuietSeconds = 3;    // without a new claim
constexpr double kLongestWait = 20;    // for claims
constexpr double kResultSeconds = 30;  // for the saver's result, and for the end of rank 0
constexpr double kRankWaits = 60;      // for its guardian
constexpr std::chrono::milliseconds kGuardianPoll{20};
constexpr char kFailed[] = "failed";  // the result of a saver whose disk fails

// Messages of a rank to its guardian.
constexpr char kRelease = 'd', kLost = 's', kVoid = 'x', kDescribed = 'r';
// The message of a guardian to its rank; the end of the socket means the same.
constexpr char kDoNotWait = 'g';

// ---- the process of the guardian ----

void IgnoreRequestsToEnd() {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGQUIT, SIGTSTP,
                           SIGTTOU, SIGTTIN, SIGPIPE, SIGALRM})
    std::signal(signal, SIG_IGN);
}

// Other programs wait for the end of pipes and sockets that the rank holds, such as mpirun's and
// Slurm's. Standard error stays, for the lines of the guardian.
void KeepOnly(int socket, int memory) {
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  const auto [low, high] = std::minmax(socket, memory);
  const auto close_from = [](int first, int last) {
    if (first <= last) close_range(static_cast<unsigned>(first), static_cast<unsigned>(last), 0);
  };
  close_from(STDERR_FILENO + 1, low - 1);
  close_from(low + 1, high - 1);
  close_range(static_cast<unsigned>(high) + 1, ~0U, 0);
}

// Returns a number of /proc/PID/stat, counted from 1 as in proc(5). 0: there is none, also because
// the process was collected while it was read.
uint64_t StatField(pid_t process, int number) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text, '\0');           // unlike iterators, it throws no errors of reading
  const size_t name_end = text.rfind(')');  // field 2 is a name, which may contain spaces
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string word;
  for (int i = 3; i <= number; ++i) fields >> word;
  return std::strtoull(word.c_str(), nullptr, 10);
}

// Makes `ps` show what this process is, instead of the command line of the rank.
void SetTitle(pid_t rank_process) {
  constexpr int kArgumentsBegin = 48, kArgumentsEnd = 49;
  prctl(PR_SET_NAME, "carole-guardian");
  const uint64_t begin = StatField(getpid(), kArgumentsBegin);
  const uint64_t end = StatField(getpid(), kArgumentsEnd);
  if (begin == 0 || end <= begin) return;
  auto* arguments = reinterpret_cast<char*>(begin);
  const std::string title = fmt::format("carole: guardian of process {}", rank_process);
  const size_t room = end - begin;
  std::memset(arguments, 0, room);
  std::copy_n(title.data(), std::min(title.size(), room - 1), arguments);
}

// Returns the signal that ended a process whose files are closed already; 0 if it was none or the
// process has been collected by its parent.
int EndingSignal(pid_t process) {
  constexpr int kExitCode = 52;
  constexpr uint64_t kSignalBits = 0x7f;
  return static_cast<int>(StatField(process, kExitCode) & kSignalBits);
}

bool DamagesMemory(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE ||
         signal == SIGABRT;
}

// Saves the state of one rank, together with the guardians of the other ranks.
class Saver {
 public:
  // `memory`: the whole shared memory. `socket`: to the rank. Throws DataError if the memory holds
  // no valid manifest.
  Saver(std::span<const std::byte> memory, int socket)
      : memory_(memory),
        socket_(socket),
        record_(*reinterpret_cast<const StateRecord*>(memory.data())),
        manifest_(ParseManifest(ManifestBytes())),
        folder_(facts().train_dir, facts().run_id),
        fallback_(FallbackFolder(facts().work_dir, facts().train_dir)) {}

  const RunFacts& facts() const { return manifest_.facts; }
  const SurvivorsFolder& folder() const { return folder_; }

  // `is_void`: no state of this run may be saved. `signal`: what has ended the rank; 0: unknown.
  void Run(bool is_void, int signal) {
    const Claim mine = MakeClaim(is_void, signal);
    const FileDescriptor lock = folder_.KeepNextRunOut();
    if (folder_.IsVisible() && Join(mine)) return;
    // A run that ends well removes the folder. mpirun may then end this rank before it says so.
    if (!IsKnownToBeSaved(mine.step)) SaveInWorkDir(mine);
  }

 private:
  std::span<const std::byte> ManifestBytes() const {
    const uint64_t position = record_.manifest_position, bytes = record_.manifest_bytes;
    if (position > memory_.size() || bytes > memory_.size() - position)
      throw DataError("[survivors] shared memory: the description of the state is damaged");
    return memory_.subspan(position, bytes);
  }

  Claim MakeClaim(bool is_void, int signal) const {
    const bool is_damaged = DamagesMemory(signal) || DamagesMemory(record_.fatal_signal);
    if (is_damaged) {
      LogWarning(
          kSurvivorsTag,
          "rank {}: ended by a signal that says its memory may be damaged; its state is not used",
          facts().rank);
    }
    const bool is_whole = record_.is_whole() && !is_damaged;
    Claim claim{.rank = facts().rank, .step = record_.progress.step};
    claim.kind = is_void ? Claim::Kind::kVoid : is_whole ? Claim::Kind::kWhole : Claim::Kind::kNone;
    return claim;
  }

  template <typename Condition>
  static void WaitFor(double seconds, const Condition& condition) {
    const double end = SteadySeconds() + seconds;
    while (!condition() && SteadySeconds() < end) std::this_thread::sleep_for(kGuardianPoll);
  }

  // Agrees with the other guardians through train_dir, and saves there if it is this guardian's
  // turn. Returns false if this guardian must save elsewhere.
  bool Join(const Claim& mine) {
    const bool is_written = TryToWrite(mine);
    if (mine.kind == Claim::Kind::kVoid) return is_written;
    const std::vector<Claim> claims = WaitForClaims(folder_);
    if (HasVoidClaim(claims)) return true;
    const std::optional<int> saver = ChooseSaver(claims);
    if (!saver) return false;
    if (saver != facts().rank) return WaitForResult(folder_);
    std::string result = Save(mine);
    if (result == kFailed && SaveInWorkDir(mine)) result = "saved_elsewhere";
    TryToWriteResult(result);
    return true;
  }

  // Returns whether the claim was written. A guardian that may only read train_dir sees the claims
  // of others, and whether they have saved.
  bool TryToWrite(const Claim& mine) const {
    bool is_written = false;
    try {
      folder_.Write(mine);
      is_written = true;
    } catch (const DiskError& error) {
      LogWarning(kSurvivorsTag, "rank {}: {}", mine.rank, WithoutTag(error.what()));
    }
    if (mine.kind == Claim::Kind::kWhole && !(is_written && HasRoom()))
      SayWhereItGoes(mine.step, "if no other rank saves it, ");
    return is_written;
  }

  // Returns IsSaved(), or false if train_dir cannot be read here.
  bool IsKnownToBeSaved(int64_t step) const {
    try {
      return IsSaved(step);
    } catch (const DiskError&) {
      return false;
    }
  }

  // Whether the disk of train_dir has room for the state. True if that is not known.
  bool HasRoom() const {
    struct statvfs disk {};
    if (statvfs(facts().train_dir.c_str(), &disk) != 0) return true;
    return disk.f_bavail * disk.f_frsize >= memory_.size();
  }

  // Logs this at once: mpirun, which passes the log on, may end before the state is saved.
  void SayWhereItGoes(int64_t step, std::string_view condition) const {
    if (facts().work_dir.empty()) {
      LogWarning(kSurvivorsTag,
                 "{}: cannot be written on {}: {}step {} is lost; with a {} on a disk of this host "
                 "it would be saved there",
                 facts().train_dir, HostName(), condition, step, Option("work_dir"));
      return;
    }
    LogWarning(kSurvivorsTag,
               "{}: cannot be written on {}: {}step {} goes to {} there; to continue from it, copy "
               "it to {} on the host of rank 0, and run again",
               facts().train_dir, HostName(), condition, step, io::CheckpointPath(fallback_, step),
               facts().train_dir);
  }

  // Returns whether the saver of this folder has succeeded, or has found that nobody should save.
  static bool WaitForResult(const SurvivorsFolder& folder) {
    WaitFor(kResultSeconds, [&] { return !folder.Result().empty(); });
    const std::string result = folder.Result();
    return !result.empty() && result != kFailed;
  }

  // If it fails, the others wait until their time is over.
  void TryToWriteResult(const std::string& result) const {
    try {
      folder_.WriteResult(result);
    } catch (const DiskError&) {
    }
  }

  std::vector<Claim> WaitForClaims(const SurvivorsFolder& folder) const {
    std::vector<Claim> claims;
    double last = SteadySeconds();
    WaitFor(kLongestWait, [&] {
      std::vector<Claim> now = folder.Read();
      if (now.size() > claims.size()) last = SteadySeconds();
      claims = std::move(now);
      const bool are_all = static_cast<int>(claims.size()) == facts().size;
      return are_all || SteadySeconds() > last + kQuietSeconds;
    });
    return claims;
  }

  std::string Save(const Claim& claim) const {
    try {
      return Write(claim.step);
    } catch (const DiskError& error) {
      LogWarning(kSurvivorsTag, "step {}: {}", claim.step, WithoutTag(error.what()));
      return kFailed;
    } catch (const std::exception& error) {
      LogWarning(kSurvivorsTag, "step {}: not saved: {}", claim.step, WithoutTag(error.what()));
      return "refused";
    }
  }

  // Saves the state in work_dir, because this guardian cannot do so in train_dir, and nobody else
  // has done it as far as it can see. The guardians that share this folder agree as in train_dir.
  // Returns whether one of them has saved.
  bool SaveInWorkDir(const Claim& mine) const {
    if (mine.kind == Claim::Kind::kNone) return false;
    try {
      return AgreeInWorkDir(mine);
    } catch (const std::exception& error) {
      LogWarning(kSurvivorsTag, "step {}: not saved: {}", mine.step, WithoutTag(error.what()));
      return false;
    }
  }

  bool AgreeInWorkDir(const Claim& mine) const {
    const bool is_whole = mine.kind == Claim::Kind::kWhole;
    if (facts().work_dir.empty()) {
      if (is_whole) SayWhereItGoes(mine.step, "");
      return false;
    }
    const SurvivorsFolder folder(fallback_, facts().run_id);
    folder.Open();
    if (is_whole && folder.Read().empty()) SayWhereItGoes(mine.step, "");  // one guardian is enough
    folder.Write(mine);
    if (mine.kind == Claim::Kind::kVoid) return false;
    const std::optional<int> saver = ChooseSaver(WaitForClaims(folder));
    if (!saver) return false;
    if (saver != facts().rank) return WaitForResult(folder);
    const std::optional<FileDescriptor> lock = folder.LockForWriting(kResultSeconds);
    if (!lock || !folder.Result().empty()) return true;
    WriteToWorkDir(mine.step);
    folder.WriteResult("saved");
    return true;
  }

  void WriteToWorkDir(int64_t step) const {
    io::Checkpoint checkpoint = MakeFiniteCheckpoint(step);
    const std::vector<io::CheckpointFile> before = io::ListCheckpoints(fallback_);
    const std::string path = io::CheckpointPath(fallback_, step);
    io::WriteCheckpoint(checkpoint, path);
    for (const io::CheckpointFile& file : before) {
      if (file.step != step) RemoveFileDurably(kSurvivorsTag, file.path);
    }
    LogWarning(kSurvivorsTag,
               "a rank was lost: saved step {} from the memory of rank {} to {} on {}", step,
               facts().rank, path, HostName());
  }

  // Writes the checkpoint, unless the folder has one that is as new. Returns what was done.
  std::string Write(int64_t step) const {
    const std::string& train_dir = facts().train_dir;
    if (!WaitForEndOfRun(train_dir, 0)) {
      // A frozen rank 0 ends only when this rank aborts the job.
      (void)send(socket_, &kDoNotWait, 1, MSG_NOSIGNAL);
    }
    if (!WaitForEndOfRun(train_dir, kResultSeconds)) {
      LogWarning(kSurvivorsTag, "{}: still locked by the run; step {} is not saved", train_dir,
                 step);
      return "locked";
    }
    // Another guardian may have decided otherwise meanwhile, such as that of a rank that was
    // frozen.
    const std::optional<FileDescriptor> lock = folder_.LockForWriting(kResultSeconds);
    if (!lock || IsSaved(step)) return "exists";
    io::Checkpoint checkpoint = MakeFiniteCheckpoint(step);
    const std::string path = io::CheckpointPath(train_dir, step);
    io::WriteCheckpoint(checkpoint, path);
    io::PruneCheckpoints(train_dir, step, facts().keep_checkpoints);
    LogWarning(kSurvivorsTag, "a rank was lost: saved step {} from the memory of rank {} to {}",
               step, facts().rank, path);
    return "saved";
  }

  // Throws ConfigError if a weight is not finite.
  io::Checkpoint MakeFiniteCheckpoint(int64_t step) const {
    io::Checkpoint checkpoint = MakeCheckpoint(manifest_, record_, memory_);
    if (!VariablesAreFinite(checkpoint))
      throw ConfigError(fmt::format("[{}] step {}: a weight is not finite", kSurvivorsTag, step));
    return checkpoint;
  }

  // A newer checkpoint counts only if it is intact: a resumed run may have skipped a damaged one.
  bool IsSaved(int64_t step) const {
    const std::vector<io::CheckpointFile> files = io::ListCheckpoints(facts().train_dir);
    if (files.empty() || files.back().step < step) return false;
    if (std::ranges::find(files, step, &io::CheckpointFile::step) != files.end()) return true;
    try {
      const auto latest = io::ReadLatest(facts().train_dir);
      return latest && latest->checkpoint.step > step;
    } catch (const DataError&) {
      return false;
    }
  }

  const std::span<const std::byte> memory_;
  const int socket_;
  const StateRecord& record_;
  const Manifest manifest_;
  const SurvivorsFolder folder_;
  const std::string fallback_;  // a folder in work_dir
};

// The life of a guardian process.
class GuardianProcess {
 public:
  GuardianProcess(int socket, int memory, pid_t rank_process)
      : socket_(socket), memory_(memory), rank_process_(rank_process) {}

  void Run() {
    char message = kLost;
    while ((message = Receive()) == kDescribed) KeepNextRunOut();
    if (message == kRelease) return;
    const int signal = message == kEnd ? EndingSignal(rank_process_) : 0;
    if (const auto saver = MakeSaver()) saver->Run(message == kVoid, signal);
  }

 private:
  static constexpr char kEnd = '\0';

  // Returns the next message, or kEnd if the rank has ended.
  char Receive() const {
    char message = kEnd;
    ssize_t size = 0;
    do {
      size = read(socket_, &message, 1);
    } while (size < 0 && errno == EINTR);
    return size == 1 ? message : kEnd;
  }

  // Returns null if the rank has described no state, so there is nothing to save.
  std::unique_ptr<Saver> MakeSaver() const {
    const std::span<const std::byte> memory = MapForReading(memory_);
    const auto& record = *reinterpret_cast<const StateRecord*>(memory.data());
    if (record.manifest_position == 0) return nullptr;
    return std::make_unique<Saver>(memory, socket_);
  }

  void KeepNextRunOut() {
    const auto saver = MakeSaver();
    if (saver && saver->facts().rank == 0) lock_ = saver->folder().KeepNextRunOut();
  }

  const int socket_, memory_;
  const pid_t rank_process_;
  FileDescriptor lock_;
};

[[noreturn]] void RunGuardian(int socket, int memory, pid_t rank_process) {
  int code = 0;
  try {
    IgnoreRequestsToEnd();
    KeepOnly(socket, memory);
    SetTitle(rank_process);
    GuardianProcess(socket, memory, rank_process).Run();
  } catch (const std::exception& error) {
    LogWarning(kSurvivorsTag, "the state is not saved: {}", error.what());
    code = 1;
  }
  _exit(code);  // the objects belong to the rank
}

// ---- the process of the rank ----

bool IsAboutLostRank(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const bool differs = dynamic_cast<const collectives::ReplicaError*>(&error) != nullptr;
  return known != nullptr && known->code() == ExitCode::kUnavailable && !differs;
}

}  // namespace

Guardian::Guardian(FileDescriptor socket) : socket_(std::move(socket)) {
  state_.SetOnDescribed([this] { Send(kDescribed); });
}

// A child in between makes the guardian a process of init: it has no parent that must collect it.
std::unique_ptr<Guardian> Guardian::Start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    LogWarning(kSurvivorsTag, "no guardian: no socket: {}", std::strerror(errno));
    return nullptr;
  }
  FileDescriptor mine(ends[0]), other(ends[1]);
  std::unique_ptr<Guardian> guardian;
  try {
    guardian.reset(new Guardian(std::move(mine)));
  } catch (const Error& error) {
    LogWarning(kSurvivorsTag, "no guardian: {}", WithoutTag(error.what()));
    return nullptr;
  }
  std::fflush(nullptr);  // or the guardian would have the text as well
  const pid_t rank_process = getpid();
  const int memory = guardian->state_.memory().file();
  const pid_t between = fork();
  if (between == 0) {
    setsid();
    if (fork() == 0) RunGuardian(other.get(), memory, rank_process);
    _exit(0);
  }
  if (between < 0) {
    LogWarning(kSurvivorsTag, "no guardian: no process: {}", std::strerror(errno));
    return nullptr;
  }
  while (waitpid(between, nullptr, 0) < 0 && errno == EINTR) {
  }
  return guardian;
}

void Guardian::Send(char message) {
  (void)send(socket_.get(), &message, 1, MSG_NOSIGNAL);  // an ended guardian needs no message
}

void Guardian::Release() {
  Send(kRelease);
  WaitForEnd();
}

void Guardian::Fail(const std::exception& error) { Send(IsAboutLostRank(error) ? kLost : kVoid); }

void Guardian::WaitForEnd() {
  const double end = SteadySeconds() + kRankWaits;
  struct pollfd socket {};
  socket.fd = socket_.get();
  socket.events = POLLIN;
  while (poll(&socket, 1, 100) <= 0 && SteadySeconds() < end) {
  }
}

}  // namespace carole::train
