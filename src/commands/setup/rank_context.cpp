#include "src/commands/setup/rank_context.h"

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "collectives/mpi/communicator.h"
#include "collectives/nccl/loader.h"
#include "launch/cluster/environment.h"
#include "launch/cluster/tf_config.h"
#include "launch/doctor/doctor.h"
#include "launch/machine/control_groups.h"
#include "launch/machine/cores.h"
#include "src/backend/arena_math.h"
#include "src/core/error.h"
#include "src/core/files/choice_cache.h"
#include "src/core/files/disk.h"
#include "src/core/hash.h"
#include "src/core/host_name.h"
#include "src/core/log.h"

namespace carole::commands {
namespace {

constexpr int kSignaled = 128;  // and the signal's number
std::optional<ExitCode> exit_means;

std::unique_ptr<collectives::Communicator> MakeCommunicator(const MachineFlags& flags) {
  const collectives::CommunicatorOptions options{
      .warn_seconds = std::min(10.0, flags.collective_timeout / 2),
      .deadline_seconds = flags.collective_timeout,
      .all_reduce = flags.all_reduce,
      .choices_path = ChoiceCache::DefaultPath("all_reduce"),
      .wire_dtype = flags.wire_dtype};
  return collectives::MakeMpiCommunicator(options);
}

// N processes that each believe to be alone are an error, not N trainings; the communicator asks
// the launcher, this the platform. A batch script without srun is one process indeed.
void RequireWholeJob(int ranks, bool trains) {
  if (launch::FindRankPlacement(std::getenv).has_value()) return;
  if (const char* tf_config = std::getenv("TF_CONFIG"); trains && tf_config != nullptr)
    launch::RequireWholeJob(launch::ParseTfConfig(tf_config, 0), ranks);
  const char* tasks = std::getenv("SLURM_NTASKS");
  if (tasks != nullptr && std::atoi(tasks) > 1)
    LogWarning("job", "one rank, but Slurm gives this job {} tasks; for all: srun --mpi=pmix",
               tasks);
}

// Ranks that are bound to the same cores of a host share them, ranks bound apart do not; and those
// of one control group share its quota.
struct Share {
  int cores, hyperthreads;
};
Share ShareOfCores(collectives::Communicator& communicator) {
  const uint64_t host = Fnv1a64(HostName());
  struct Shared {
    uint64_t cores;
    uint64_t quota;
  };
  const launch::BoundCores bound = launch::FindBoundCores();
  const Shared mine{Fnv1a64(bound.cpus, host), Fnv1a64(launch::ControlGroups(), host)};
  const std::vector<Shared> all = AllGather(communicator, mine, {.what = "cores"});
  const auto sharers = [&](uint64_t Shared::*what) {
    return static_cast<int>(std::count_if(
        all.begin(), all.end(), [&](const Shared& rank) { return rank.*what == mine.*what; }));
  };
  const auto share_of = [&](int count) {
    return launch::ShareOfCores(count, sharers(&Shared::cores), launch::CpuQuota(),
                                sharers(&Shared::quota));
  };
  return {.cores = share_of(bound.count), .hyperthreads = share_of(bound.threads)};
}

// Each rank of a host has a GPU of its own. Throws ConfigError when there are too few.
int ChooseGpu(const collectives::Communicator& communicator) {
  std::optional<launch::RankPlacement> place = launch::FindRankPlacement(std::getenv);
  if (!place) return 0;
  if (place->local_rank < 0) place->local_rank = communicator.local_rank();
  return launch::ChooseGpu(*place, CountGpus(), std::getenv("CUDA_VISIBLE_DEVICES"));
}

// Whether every rank can compute on one.
bool HaveGpus(collectives::Communicator& communicator) {
  bool lacking = false;
  try {
    const bool has_driver = HasCudaDriver();
    if (!has_driver && access("/dev/nvidia0", F_OK) == 0)
      LogWarning("cuda",
                 "the GPU is not used: its driver's libcuda.so.1 was not found; look at "
                 "LD_LIBRARY_PATH, or how the container was started");
    lacking = !has_driver || CountGpus() == 0;
    if (!lacking && communicator.size() > 1) {
      (void)ChooseGpu(communicator);
      (void)collectives::NcclVersion();
    }
  } catch (const Error& error) {
    LogWarning("cuda", "the GPUs are not used: {}", WithoutTag(error.what()));
    lacking = true;
  }
  return CountRanks(communicator, lacking, {.what = "GPUs"}) == 0;
}

// Without AVX2 oneDNN has no kernels of its own for most backward passes: plain loops are many
// times faster.
bool IsFast(const BackendEntry& entry) {
  if (!entry.problem().empty()) return false;
  const bool is_slow = entry.name == "onednn" && __builtin_cpu_supports("avx2") == 0;
  if (is_slow)
    LogWarning("job", "this CPU has no AVX2, so oneDNN would be slow: --backend=reference");
  return !is_slow;
}

std::unique_ptr<Backend> MakeBackend(const MachineFlags& flags, int threads,
                                     collectives::Communicator& communicator) {
  const std::string& name = flags.backend;
  const bool is_auto = name == "auto";
  if (name == kCudaBackend.name) {
    if (const std::string problem = kCudaBackend.problem(); !problem.empty())
      throw ConfigError(fmt::format("[cuda] --backend=cuda: {}; use --backend=onednn", problem));
  }
  if (name == kCudaBackend.name || (is_auto && HaveGpus(communicator)))
    return MakeCudaBackend({.device = ChooseGpu(communicator), .times_plans = flags.autotune});
  for (const BackendEntry& entry : kBackends) {
    if (is_auto ? IsFast(entry) : entry.name == name) return entry.make(threads);
  }
  throw UsageError(
      fmt::format("[flags] --backend: got {}, want auto, cuda, onednn or reference", name));
}

// At most as many as OMP_NUM_THREADS says: whoever sets it shares the machine with others.
Share Bounded(const Share& share) {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const int wanted = text != nullptr ? std::atoi(text) : 0;
  if (wanted <= 0 || wanted >= share.hyperthreads) return share;
  const Share bounded{.cores = std::min(wanted, share.cores), .hyperthreads = wanted};
  LogInfo("job",
          "{} of {} cores, {} of {} hyperthreads: OMP_NUM_THREADS says so; --threads wins over it",
          bounded.cores, share.cores, bounded.hyperthreads, share.hyperthreads);
  return bounded;
}

// Open MPI binds each of two ranks to one core unless it is told otherwise.
void WarnOfIdleCores(const collectives::Communicator& communicator) {
  const std::optional<launch::RankPlacement> place = launch::FindRankPlacement(std::getenv);
  if (!place || place->launcher != "Open MPI" || communicator.local_rank() != 0) return;
  const char* policy = std::getenv("OMPI_MCA_hwloc_base_binding_policy");
  if (policy != nullptr && std::string_view(policy) == "none") return;
  const launch::Finding found = launch::CheckCores(communicator.local_size());
  if (found.verdict != launch::Verdict::kOk) LogWarning("job", "{}; {}", found.text, found.fix);
}

std::string MeaningOf(int code) {
  if (exit_means) return Describe(*exit_means);
  if (code > kSignaled && code < kSignaled + SIGRTMIN)
    return fmt::format("ended by a signal: {}", strsignal(code - kSignaled));
  return Describe(static_cast<ExitCode>(code));
}

// OpenMP's team of so many threads, or of as many as it gives: kernels wait for those that they
// were told of, forever.
int MakeTeam(int threads) {
  omp_set_dynamic(0);
  omp_set_max_active_levels(std::max(1, omp_get_max_active_levels()));
  if (const int limit = omp_get_thread_limit(); threads > limit) {
    LogWarning("job", "{} of {} threads compute: OMP_THREAD_LIMIT says so", limit, threads);
    threads = limit;
  }
  omp_set_num_threads(threads);
  return threads;
}

// Denormals cost a hundred cycles each and say nothing; TensorFlow takes them for zeros, too. Holds
// for the threads that this one starts.
void FlushDenormals() { _mm_setcsr(_mm_getcsr() | 0x8040); }

}  // namespace

Job::Job(const MachineFlags& flags)
    : collective_timeout_(flags.collective_timeout), wire_dtype_(flags.wire_dtype) {
  FlushDenormals();
  const Precision precision = ParsePrecision(flags.precision);
  communicator_ = MakeCommunicator(flags);
  RequireWholeJob(communicator_->size(), flags.trains);
  SetLogRank(rank(), size());
  Share share = ShareOfCores(*communicator_);
  if (flags.threads == 0) {
    WarnOfIdleCores(*communicator_);
    share = Bounded(share);
  }
  cores_ = share.cores;
  hyperthreads_ = share.hyperthreads;
  const int threads = MakeTeam(flags.threads > 0 ? flags.threads : cores_);
  MakeBackendOnAllRanks(flags, threads, precision);
}

void Job::MakeBackendOnAllRanks(const MachineFlags& flags, int threads, Precision precision) {
  std::exception_ptr problem;
  try {
    backend_ = MakeBackend(flags, threads, *communicator_);
    backend_->SetPrecision(precision);
    if (!flags.winograd) backend_->UseWinograd(Winograd::kNever);
  } catch (const Error&) {
    problem = std::current_exception();
  }
  const int lacking = CountRanks(*communicator_, problem != nullptr, {.what = "backends"});
  if (problem) std::rethrow_exception(problem);
  if (lacking > 0) {
    throw ConfigError(
        fmt::format("[job] --backend, --precision: {} of {} ranks cannot compute so; they say "
                    "why",
                    lacking, size()));
  }
}

void Job::ConnectDevices() const {
  const ArenaMath* math = backend_->arena_math();
  if (math == nullptr) return;
  if (wire_dtype_ != "fp32" && is_chief())
    LogWarning("job", "--wire_dtype={}: GPUs' sums travel as fp32 all the same", wire_dtype_);
  collectives::UseNccl(*communicator_, {.device = math->device(), .stream = math->stream()},
                       collective_timeout_);
}

int RunJob(const MachineFlags& flags, const std::function<int(Job&)>& body) {
  Job job(flags);
  try {
    return body(job);
  } catch (const std::exception&) {
    if (job.size() == 1) throw;
    const int code = LogFailure(std::current_exception());
    LogError("job", "{} ends the job with exit code {}", job.communicator().NameOf(job.rank()),
             code);
    ReportExit(code);
    std::fflush(nullptr);
    job.communicator().Abort(code);
    std::_Exit(code);
  }
}

int ReportError(const std::exception_ptr& error) {
  const int code = LogFailure(error);
  ReportExit(code);
  return code;
}

int LogFailure(const std::exception_ptr& error) {
  ExitCode code = ExitCode::kInternal;
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    code = e.code();
    LogError("", "{}", e.what());
  } catch (const std::bad_alloc&) {
    code = ExitCode::kConfiguration;
    LogError("", "[memory] out of memory; use less at a time (--batch_size), or more memory");
  } catch (const std::filesystem::filesystem_error& e) {
    code = ExitCode::kDisk;
    LogError("", "[disk] {}", DiskProblem(e.path1().string(), "use", e.code().value()));
  } catch (const std::system_error& e) {
    // What libstdc++ throws for a thread has no text of its own; a stream that takes no more has.
    const bool is_thread =
        e.code() == std::errc::resource_unavailable_try_again && e.what() == e.code().message();
    code = is_thread ? ExitCode::kConfiguration : ExitCode::kDisk;
    LogError("", "[system] {}{}",
             is_thread ? "no more threads can be started; raise ulimit -u, or pids.max of the "
                         "control group, or use fewer --threads: "
                       : "",
             e.what());
  } catch (const std::exception& e) {
    LogError("", "{}", e.what());
  }
  return static_cast<int>(code);
}

void ReportExit(int code) {
  if (code == 0 && !exit_means) return;
  PrintExit(code, MeaningOf(code));
}

void ReportExitAs(ExitCode meaning) { exit_means = meaning; }

}  // namespace carole::commands
