#include "launch/doctor/doctor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "launch/cluster/message_text.h"
#include "launch/job/process.h"
#include "launch/machine/cores.h"
#include "launch/machine/memory.h"
#include "src/core/error.h"
#include "src/core/hints.h"
#include "src/core/stopwatch.h"
#include "src/core/text/join_names.h"

namespace carole::launch {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMegabyte = 1 << 20;
constexpr int64_t kGigabyte = 1 << 30;

std::string Bytes(int64_t bytes) {
  return bytes >= kGigabyte ? fmt::format("{:.1f} GB", static_cast<double>(bytes) / kGigabyte)
                            : fmt::format("{} MB", bytes / kMegabyte);
}

int64_t FreeBytes(const std::string& folder) {
  struct statvfs disk;
  if (statvfs(folder.c_str(), &disk) != 0) return -1;
  return static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
}

int64_t SoftLimit(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<int64_t>(limit.rlim_cur);
}

// Returns whether the interface is a bridge of containers or virtual machines, which does not
// connect to other hosts.
bool IsVirtual(const std::string& name) {
  const char* prefixes[] = {"docker", "virbr", "cni", "br-", "veth", "podman", "flannel", "cali"};
  return std::any_of(std::begin(prefixes), std::end(prefixes),
                     [&](const char* prefix) { return name.starts_with(prefix); });
}

// Returns the write speed of the disk in bytes per second, measured with fsync(). Returns 0 and
// sets errno if the file cannot be written.
double MeasureWriteSpeed(const std::string& path) {
  const std::vector<char> block(4 * kMegabyte, 'c');
  constexpr int kBlocks = 8;
  unlink(path.c_str());  // left by a process with this id that was killed
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return 0;
  const auto start = std::chrono::steady_clock::now();
  bool good = true;
  errno = ENOSPC;  // a short write does not set errno
  for (int i = 0; i < kBlocks && good; ++i)
    good = write(file, block.data(), block.size()) == static_cast<ssize_t>(block.size());
  good = good && fsync(file) == 0;
  const int error = errno;
  const double seconds = SecondsSince(start);
  close(file);
  unlink(path.c_str());
  errno = error;
  return good ? kBlocks * static_cast<double>(block.size()) / seconds : 0;
}

}  // namespace

const char* FindingStatusName(FindingStatus status) {
  constexpr const char* kNames[] = {"ok", "warning", "problem", "skipped"};
  return kNames[static_cast<int>(status)];
}

Finding JudgeCores(int bound_cores, int machine_cores, int local_ranks, double quota) {
  const int share = std::max(1, machine_cores / std::max(1, local_ranks));
  const std::string text = fmt::format("{} of {} cores for this rank, ranks on this host: {}{}",
                                       bound_cores, machine_cores, local_ranks,
                                       quota > 0 ? fmt::format(", quota of {:g} CPUs", quota) : "");
  if (bound_cores < share)
    return {"cores", FindingStatus::kProblem, text,
            fmt::format("start with mpirun --bind-to none, or --map-by slot:PE={}; srun "
                        "--cpu-bind=none, or --cpus-per-task={}",
                        share, share)};
  if (quota > 0 && quota < 1)
    return {"cores", FindingStatus::kProblem, text, "raise the container's CPU limit to 1 or more"};
  const double usable = quota > 0 ? std::min<double>(quota, machine_cores) : machine_cores;
  if (local_ranks > usable) {
    return {"cores", FindingStatus::kWarning, text,
            fmt::format("start at most {:.0f} ranks on this host: more ranks share cores",
                        std::floor(usable))};
  }
  return {"cores", FindingStatus::kOk, text, ""};
}

Finding CheckCores(int local_ranks) {
  return JudgeCores(FindBoundCores().count, CountCores(), local_ranks, CpuQuota().value_or(0));
}

Finding JudgeMemory(int64_t available_bytes, int local_ranks) {
  const int64_t share = available_bytes / std::max(1, local_ranks);
  const std::string text = fmt::format("{} for each rank", Bytes(share));
  if (share >= kGigabyte) return {"memory", FindingStatus::kOk, text, ""};
  return {"memory", FindingStatus::kWarning, text,
          "raise the limit of the job or container (Slurm: --mem), or start fewer ranks: ResNet-50 "
          "needs about 2.5 GB at batch size 32"};
}

Finding CheckMemory(int local_ranks) { return JudgeMemory(AvailableMemory(), local_ranks); }

Finding JudgeSharedMemory(int64_t free_bytes) {
  const std::string check = "shared memory";
  if (free_bytes < 0)
    return {check, FindingStatus::kProblem, "/dev/shm cannot be read", "mount a tmpfs at /dev/shm"};
  const std::string text = fmt::format("{} free in /dev/shm", Bytes(free_bytes));
  if (free_bytes >= 512 * kMegabyte) return {check, FindingStatus::kOk, text, ""};
  return {check, free_bytes < 64 * kMegabyte ? FindingStatus::kProblem : FindingStatus::kWarning,
          text, std::string("gradients of large nets do not fit: ") + kMoreSharedMemoryHint};
}

Finding CheckSharedMemory() { return JudgeSharedMemory(FreeBytes("/dev/shm")); }

Finding JudgeLimits(int64_t open_files, int64_t locked_bytes, bool has_infiniband) {
  const auto show = [](int64_t limit) {
    return limit < 0 ? std::string("unlimited") : std::to_string(limit);
  };
  const std::string text =
      fmt::format("open files {}, locked memory {}{}{}", show(open_files), show(locked_bytes),
                  locked_bytes < 0 ? "" : " bytes", has_infiniband ? ", InfiniBand" : "");
  if (open_files >= 0 && open_files < 1024)
    return {"limits", FindingStatus::kProblem, text,
            "ulimit -n 4096 (container: --ulimit nofile=4096)"};
  if (has_infiniband && locked_bytes >= 0)
    return {"limits", FindingStatus::kProblem, text,
            "ulimit -l unlimited (container: --ulimit memlock=-1): InfiniBand locks its buffers"};
  return {"limits", FindingStatus::kOk, text, ""};
}

Finding CheckLimits() {
  std::error_code ignored;
  return JudgeLimits(SoftLimit(RLIMIT_NOFILE), SoftLimit(RLIMIT_MEMLOCK),
                     fs::exists("/sys/class/infiniband", ignored) &&
                         !fs::is_empty("/sys/class/infiniband", ignored));
}

Finding JudgeGpuMemory(int64_t shm_free_bytes, int64_t locked_bytes, int gpu_ranks) {
  const std::string check = "NCCL memory";
  if (gpu_ranks < 2) return {check, FindingStatus::kSkipped, "fewer than two ranks on GPUs", ""};
  const std::string text = fmt::format("{} free in /dev/shm, locked memory {}",
                                       Bytes(std::max<int64_t>(shm_free_bytes, 0)),
                                       locked_bytes < 0 ? "unlimited" : Bytes(locked_bytes));
  // NVIDIA's advice for containers is 1 GB. A rank's buffers for one other rank take 10 MB or more.
  const int64_t least = 32 * kMegabyte * gpu_ranks;
  if (shm_free_bytes < kGigabyte)
    return {check, shm_free_bytes < least ? FindingStatus::kProblem : FindingStatus::kWarning, text,
            kMoreSharedMemoryHint};
  if (locked_bytes >= 0)
    return {check, FindingStatus::kWarning, text,
            "ulimit -l unlimited (container: --ulimit memlock=-1): NCCL may lock its buffers"};
  return {check, FindingStatus::kOk, text, ""};
}

Finding CheckGpuMemory(int gpu_ranks) {
  return JudgeGpuMemory(FreeBytes("/dev/shm"), SoftLimit(RLIMIT_MEMLOCK), gpu_ranks);
}

Finding JudgeInterfaces(const std::vector<std::string>& names, const std::string& chosen) {
  const std::string text = fmt::format("{}{}", names.empty() ? "loopback only" : JoinTexts(names),
                                       chosen.empty() ? "" : "; MPI uses " + chosen);
  std::vector<std::string> real;
  for (const std::string& name : names) {
    if (!IsVirtual(name)) real.push_back(name);
  }
  if (!chosen.empty() || real.size() == names.size())
    return {"network", FindingStatus::kOk, text, ""};
  const std::string name = real.empty() ? "NAME" : real[0];
  return {
      "network", FindingStatus::kWarning, text,
      fmt::format("if the job has several hosts, choose the interface that connects them: --mca "
                  "btl_tcp_if_include {0} --mca oob_tcp_if_include {0}; carole launch {1}",
                  name, Option("network", name))};
}

Finding CheckInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {"network", FindingStatus::kSkipped, std::strerror(errno), ""};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> keeper(list, freeifaddrs);
  std::vector<std::string> names;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool is_up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (is_up && entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET &&
        std::find(names.begin(), names.end(), entry->ifa_name) == names.end())
      names.emplace_back(entry->ifa_name);
  }
  const char* chosen = std::getenv("OMPI_MCA_btl_tcp_if_include");
  return JudgeInterfaces(names, chosen == nullptr ? "" : chosen);
}

Finding JudgeMpi(const std::string& library, const std::string& mpirun) {
  if (library == "none")
    return {"MPI", FindingStatus::kWarning, "carole was built without MPI: one rank only",
            "install libopenmpi-dev and build again"};
  const std::string version = FirstMatch(mpirun, kVersionPattern);
  const std::string text =
      fmt::format("{}; mpirun {}", library, version.empty() ? "none" : version);
  if (version.empty())
    return {"MPI", FindingStatus::kWarning, text, "install openmpi-bin, or start ranks with srun"};
  if (mpirun.find("Open MPI") == std::string::npos ||
      version != FirstMatch(library, kVersionPattern))
    return {"MPI", FindingStatus::kProblem, text,
            "put the mpirun of the MPI that carole was built with first in PATH"};
  return {"MPI", FindingStatus::kOk, text, ""};
}

Finding CheckMpi(const std::string& library) {
  std::string mpirun;
  try {
    mpirun = RunAndCaptureOutput({FindProgram("mpirun", "openmpi-bin"), "--version"});
  } catch (const Error&) {
    mpirun.clear();  // there is none
  }
  return JudgeMpi(library, mpirun);
}

Finding JudgeDisk(const std::string& folder, int64_t free_bytes, double bytes_per_second) {
  const std::string text = fmt::format("{}: {} free, writes {}/s", folder, Bytes(free_bytes),
                                       Bytes(static_cast<int64_t>(bytes_per_second)));
  if (free_bytes < 2 * kGigabyte)
    return {"disk", FindingStatus::kProblem, text,
            "free some space (6 checkpoints of a large net take 5 GB), or use " +
                Option("keep_checkpoints", "1")};
  if (bytes_per_second < 20.0 * kMegabyte)
    return {"disk", FindingStatus::kWarning, text,
            fmt::format("saving checkpoints may not keep up: use a larger {} or another disk",
                        Option("save_interval_secs"))};
  return {"disk", FindingStatus::kOk, text, ""};
}

Finding JudgeUnwritable(const std::string& folder, int error) {
  const std::string option = Option("train_dir");
  std::string fix = fmt::format("set {} to a folder that this user may write", option);
  if (error == ENOSPC) fix = fmt::format("free some space, or set {} to another disk", option);
  if (error == EDQUOT)
    fix = fmt::format("free some space within the quota of this user, or set {} to another disk",
                      option);
  if (error == EROFS)
    fix = fmt::format("the file system is read-only: mount it writable, or set {} to another one",
                      option);
  return {"disk", FindingStatus::kProblem,
          fmt::format("{}: cannot be written: {}", folder, std::strerror(error)), fix};
}

Finding CheckDisk(const std::string& folder) {
  std::error_code error;
  fs::path existing = fs::absolute(folder, error);
  while (!fs::exists(existing, error) && existing.has_relative_path())
    existing = existing.parent_path();
  const std::string file = existing / fmt::format(".carole-doctor-{}", getpid());
  const double speed = MeasureWriteSpeed(file);
  if (speed == 0) return JudgeUnwritable(existing.string(), errno);
  return JudgeDisk(existing.string(), FreeBytes(existing.string()), speed);
}

Finding JudgeClocks(double skew_seconds, double error) {
  const std::string text = fmt::format("{:.3f} s apart (+- {:.3f} s)", skew_seconds, error);
  if (skew_seconds - error <= 1) return {"clocks", FindingStatus::kOk, text, ""};
  return {"clocks", FindingStatus::kWarning, text,
          "run a time service (chrony) on all hosts: times of files and logs disagree"};
}

}  // namespace carole::launch
