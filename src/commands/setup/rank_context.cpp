#include "src/commands/setup/rank_context.h"

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "collectives/mpi/communicator.h"
#include "collectives/nccl/loader.h"
#include "collectives/wire_choice.h"
#include "launch/cluster/environment.h"
#include "launch/cluster/tf_config.h"
#include "launch/doctor/doctor.h"
#include "launch/machine/cgroups.h"
#include "launch/machine/cores.h"
#include "launch/machine/memory.h"
#include "src/commands/setup/bench_memory.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/files/tuning_cache.h"
#include "src/core/hash.h"
#include "src/core/host_name.h"
#include "src/core/log.h"
#include "src/core/stopwatch.h"
#include "src/core/text/parse_number.h"
#include "src/train/loop/stop_signals.h"

namespace carole::commands {
namespace {

constexpr int kSignaled = 128;  // the exit code after a signal is this plus the signal's number
std::optional<ExitCode> exit_meaning;

std::unique_ptr<collectives::FullCommunicator> MakeCommunicator(const MachineConfig& flags) {
  collectives::CommunicatorOptions options = flags.communicator;
  options.warn_seconds = std::min(options.warn_seconds, options.deadline_seconds / 2);
  options.choices_path = TuningCache::DefaultPath("all_reduce");
  return collectives::MakeMpiCommunicator(options);
}

// Refuses to train alone if the platform describes a job of several tasks, since N processes that
// each believe that they are alone would be N trainings. (The communicator has already asked the
// launcher.) Under Slurm it only warns, because a batch script without srun really is one process.
void RequireWholeJob(int ranks, bool is_training) {
  if (launch::FindRankPlacement(std::getenv).has_value()) return;
  if (is_training) launch::RequireUsableLauncher(std::getenv);
  if (const char* tf_config = std::getenv("TF_CONFIG"); is_training && tf_config != nullptr)
    launch::RequireWholeJob(launch::ParseTfConfig(tf_config, 0), ranks);
  const char* tasks = std::getenv("SLURM_NTASKS");
  if (tasks != nullptr && std::atoi(tasks) > 1)
    LogWarning("job",
               "one rank runs, but Slurm gives this job {} tasks; start with srun "
               "--mpi=pmix to use all",
               tasks);
}

// A rank's share of its host's cores. Ranks that are bound to the same cores share them; ranks that
// are bound to different cores do not. Ranks of one control group share its CPU quota.
struct CoreShare {
  int cores, hyperthreads;
};
CoreShare FindCoreShare(collectives::Communicator& communicator) {
  const uint64_t host = Fnv1a64(HostName());
  struct Shared {
    uint64_t cores;
    uint64_t quota;
  };
  const launch::BoundCores bound = launch::FindBoundCores();
  const Shared mine{Fnv1a64(bound.cpus, host), Fnv1a64(launch::CgroupMembership(), host)};
  const std::vector<Shared> all = AllGather(communicator, mine, {.what = "cores"});
  const auto sharers = [&](uint64_t Shared::*what) {
    return static_cast<int>(std::count_if(
        all.begin(), all.end(), [&](const Shared& rank) { return rank.*what == mine.*what; }));
  };
  const auto share_of = [&](int count) {
    return launch::ThreadsPerProcess(count, sharers(&Shared::cores), launch::CpuQuota(),
                                     sharers(&Shared::quota));
  };
  return {.cores = share_of(bound.count), .hyperthreads = share_of(bound.threads)};
}

// Returns this rank's GPU: each rank of a host has its own. Throws ConfigError if there are too
// few.
int ChooseGpu(const collectives::Communicator& communicator) {
  std::optional<launch::RankPlacement> place = launch::FindRankPlacement(std::getenv);
  if (!place) return 0;
  if (place->local_rank < 0) place->local_rank = communicator.local_rank();
  return launch::ChooseGpu(*place, CountGpus(), std::getenv("CUDA_VISIBLE_DEVICES"));
}

// Whether every rank can compute on a GPU. Warns if a GPU exists but cannot be used. Collective.
bool AllRanksHaveGpus(collectives::Communicator& communicator) {
  bool lacking = false;
  try {
    const bool has_driver = HasCudaDriver();
    if (!has_driver && access("/dev/nvidia0", F_OK) == 0)
      LogWarning("cuda",
                 "the GPU is not used: its driver's libcuda.so.1 was not found; check "
                 "LD_LIBRARY_PATH and how the container was started");
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

// Whether this backend is available and reasonably fast. Without AVX2 oneDNN has no optimized
// kernels for most backward passes, and the reference backend's loops are many times faster.
bool IsFast(const BackendEntry& entry) {
  if (!entry.unavailable_reason().empty()) return false;
  const bool is_slow = entry.make == MakeOneDnnBackend && __builtin_cpu_supports("avx2") == 0;
  if (is_slow)
    LogWarning("job", "this CPU has no AVX2, so oneDNN would be slow; using --backend=reference");
  return !is_slow;
}

// Returns this rank's GPU, or nullopt if the flags or the machines say that ranks use CPUs.
// Collective. Throws ConfigError if there is no GPU although one was asked for.
std::optional<int> FindGpu(const MachineConfig& flags, collectives::Communicator& communicator) {
  const bool is_required = flags.backend == kCudaBackend.name;
  if (is_required) {
    if (const std::string problem = kCudaBackend.unavailable_reason(); !problem.empty())
      throw ConfigError(fmt::format("[cuda] --backend=cuda: {}; use --backend=onednn", problem));
  }
  if (is_required || (flags.backend == "auto" && AllRanksHaveGpus(communicator)))
    return ChooseGpu(communicator);
  return std::nullopt;
}

// Binds this rank to the cores next to its GPU. The only rank of a host keeps all cores, since it
// may need them to decode images.
void BindNextToGpu(const collectives::Communicator& communicator, int gpu) {
  if (communicator.local_size() == 1) return;
  const std::string bus_id = GpuBusId(gpu);
  const std::string cpus = launch::BindNextTo(bus_id);
  if (!cpus.empty()) LogInfo("job", "bound to CPUs {}, which are next to GPU {}", cpus, bus_id);
}

std::unique_ptr<Backend> MakeBackend(const MachineConfig& flags, int threads,
                                     std::optional<int> gpu) {
  if (gpu) return MakeCudaBackend({.device = *gpu, .autotune = flags.autotune});
  const std::string& name = flags.backend;
  const bool is_any_cpu = name == "auto" || name == "cpu";
  for (const BackendEntry& entry : kBackends) {
    if (is_any_cpu ? IsFast(entry) : entry.name == name) return entry.make(threads);
  }
  throw UsageError(
      fmt::format("[flags] --backend: got {}, want auto, cpu, cuda, onednn or reference", name));
}

// Returns the number of threads in the text of OMP_NUM_THREADS, 0 if that is no positive number.
// The first number of a list counts: the others are for nested teams.
int ParseOmpNumThreads(std::string_view text) {
  text = text.substr(0, text.find(','));
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return 0;
  text = text.substr(first, text.find_last_not_of(" \t") + 1 - first);
  return std::max(0, ParseNumber<int>(text).value_or(0));
}

// Limits the share to OMP_NUM_THREADS. Users set it if they share the machine with others.
CoreShare LimitByOmpNumThreads(const CoreShare& share,
                               const collectives::Communicator& communicator) {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr || *text == '\0') return share;
  const int wanted = ParseOmpNumThreads(text);
  if (wanted == 0 && communicator.local_rank() == 0) {
    LogWarning("job", "OMP_NUM_THREADS: got {}, want a whole number above 0; not limiting threads",
               text);
  }
  if (wanted == 0 || wanted >= share.hyperthreads) return share;
  const CoreShare bounded{.cores = std::min(wanted, share.cores), .hyperthreads = wanted};
  LogInfo("job",
          "using {} of {} cores and {} of {} hyperthreads because of OMP_NUM_THREADS; --threads "
          "overrides it",
          bounded.cores, share.cores, bounded.hyperthreads, share.hyperthreads);
  return bounded;
}

// Warns if cores stay idle. Open MPI binds each of up to two ranks to one core by default.
void WarnOfIdleCores(const collectives::Communicator& communicator) {
  const std::optional<launch::RankPlacement> place = launch::FindRankPlacement(std::getenv);
  if (!place || place->launcher != "Open MPI" || communicator.local_rank() != 0) return;
  const char* policy = std::getenv("OMPI_MCA_hwloc_base_binding_policy");
  if (policy != nullptr && std::string_view(policy) == "none") return;
  const launch::Finding found = launch::CheckCores(communicator.local_size());
  if (found.status != launch::FindingStatus::kOk)
    LogWarning("job", "{}; {}", found.text, found.fix);
}

std::string DescribeExit(int code) {
  if (exit_meaning) return Describe(*exit_meaning);
  if (code > kSignaled && code < kSignaled + SIGRTMIN)
    return fmt::format("ended by a signal: {}", strsignal(code - kSignaled));
  return Describe(static_cast<ExitCode>(code));
}

// Sets the size of OpenMP's team and returns it. It is smaller than `threads` if OpenMP limits it:
// kernels would wait forever for threads that do not exist.
int SetOpenMpThreads(int threads) {
  omp_set_dynamic(0);
  omp_set_max_active_levels(std::max(1, omp_get_max_active_levels()));
  if (const int limit = omp_get_thread_limit(); threads > limit) {
    LogWarning("job", "using {} of {} threads because of OMP_THREAD_LIMIT", limit, threads);
    threads = limit;
  }
  omp_set_num_threads(threads);
  return threads;
}

// The error of a rank that fails only because another rank did.
class FollowingError : public ConfigError {
  using ConfigError::ConfigError;
};

// Ranks often fail in the same way at the same time, and one report is enough. So a rank waits for
// a moment before it reports, unless it is the chief: the abort of the rank that reports first ends
// the others by SIGTERM. A rank that catches it ends here. What ranks know of a lost rank differs,
// and the lost rank says nothing, so they report at once.
void LetOthersReport(const RankContext& context, const std::exception& error) {
  const bool is_following = dynamic_cast<const FollowingError*>(&error) != nullptr;
  const bool is_about_loss = dynamic_cast<const CommError*>(&error) != nullptr;
  if (is_about_loss || (context.is_chief() && !is_following)) return;
  const double end = SteadySeconds() + (is_following ? 2 : 1);
  const bool was_stopping = train::StopRequested();
  while (SteadySeconds() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (train::StopRequested() && !was_stopping)
      std::_Exit(static_cast<int>(ExitCode::kUnavailable));
  }
}

// Runs the body of a rank. If memory runs out, throws ConfigError, which names the flags of the
// command that need less memory with smaller values.
int RunBody(const MachineConfig& flags, const std::function<int(RankContext&)>& body,
            RankContext& context) {
  try {
    return body(context);
  } catch (const std::bad_alloc&) {
    throw ConfigError(
        fmt::format("[memory] out of memory; use a smaller {} or more memory", flags.memory_flags));
  }
}

// Makes the CPU treat denormals as zeros, as TensorFlow does. A denormal costs about a hundred
// cycles and adds no useful precision. Threads that this thread starts later inherit the setting.
void FlushDenormals() { _mm_setcsr(_mm_getcsr() | 0x8040); }

}  // namespace

RankContext::RankContext(const MachineConfig& flags)
    : collective_timeout_(flags.communicator.deadline_seconds),
      chooses_wire_dtype_(!flags.communicator.wire_dtype) {
  FlushDenormals();
  communicator_ = MakeCommunicator(flags);
  RequireWholeJob(communicator_->size(), flags.is_training);
  SetLogRank(rank(), size());
}

void RankContext::StartBackend(const MachineConfig& flags) {
  if (flags.threads == 0) WarnOfIdleCores(*communicator_);
  std::exception_ptr problem;
  std::optional<int> gpu;
  try {
    gpu = FindGpu(flags, *communicator_);
    if (gpu) BindNextToGpu(*communicator_, *gpu);
  } catch (const Error&) {
    problem = std::current_exception();  // reported when all ranks have come to the end
  }
  CoreShare share = FindCoreShare(*communicator_);
  if (flags.threads == 0) share = LimitByOmpNumThreads(share, *communicator_);
  cores_ = share.cores;
  hyperthreads_ = share.hyperthreads;
  const int threads = SetOpenMpThreads(flags.threads > 0 ? flags.threads : cores_);
  try {
    if (!problem) MakeBackendOf(flags, threads, gpu);
  } catch (const Error&) {
    problem = std::current_exception();
  }
  FailOnAllRanks(problem);
}

void RankContext::MakeBackendOf(const MachineConfig& flags, int threads, std::optional<int> gpu) {
  backend_ = MakeBackend(flags, threads, gpu);
  backend_->SetPrecision(flags.precision);
  if (!flags.winograd) backend_->UseWinograd(Winograd::kNever);
}

void RankContext::FailOnAllRanks(const std::exception_ptr& problem) {
  const int lacking = CountRanks(*communicator_, problem != nullptr, {.what = "backends"});
  if (problem) std::rethrow_exception(problem);
  if (lacking > 0) {
    throw FollowingError(
        fmt::format("[job] --backend, --precision: {} of {} ranks do not support these values; "
                    "see their errors",
                    lacking, size()));
  }
}

void RankContext::ConnectDevices(collectives::NcclOptions options) const {
  const std::optional<GpuStream> gpu = backend_->gpu_stream();
  if (!gpu) return;
  options.deadline_seconds = collective_timeout_;
  communicator_->SetDeviceAllReduce(collectives::ConnectByNccl(
      *communicator_, {.device = gpu->device, .stream = gpu->stream}, options));
}

void RankContext::ChooseWireDtype() const {
  if (!chooses_wire_dtype_ || size() == 1) return;
  if (!backend_->has_own_memory())
    return static_cast<void>(collectives::ChooseWireDtype(*communicator_));
  const auto memory = MakeOwnedUnlessFailing<BackendBenchMemory>(*this, *backend_, *communicator_,
                                                                 collectives::kMeasuredBytes);
  collectives::ChooseWireDtype(*communicator_, memory.get());
}

int64_t RankContext::MinMemoryShare(Memory memory) const {
  struct Rank {
    uint64_t memory;  // identifies the memory; ranks with the same value share it
    int64_t available;
  };
  std::optional<size_t> free;
  if (memory == Memory::kBackend) free = backend_->FreeBytes();
  const Rank mine = free ? Rank{static_cast<uint64_t>(rank()), static_cast<int64_t>(*free)}
                         : Rank{Fnv1a64(HostName()), launch::AvailableMemory()};
  const std::vector<Rank> all = AllGather(*communicator_, mine, {.what = "memory"});
  int64_t least = mine.available;
  for (const Rank& rank : all) {
    const auto sharers = std::count_if(
        all.begin(), all.end(), [&](const Rank& other) { return other.memory == rank.memory; });
    least = std::min<int64_t>(least, rank.available / std::max<int64_t>(sharers, 1));
  }
  return least;
}

int RunAsRank(const MachineConfig& flags, const std::function<int(RankContext&)>& body) {
  RankContext context(flags);
  try {
    context.StartBackend(flags);
    return RunBody(flags, body, context);
  } catch (const std::exception& error) {
    const auto& [at_once, before_end] = context.failure_hooks();
    if (at_once) at_once(error);
    if (context.size() == 1) throw;
    LetOthersReport(context, error);
    const int code = LogFailure(std::current_exception());
    LogError("job", "{} ends the job with exit code {}",
             context.communicator().NameOf(context.rank()), code);
    if (before_end) before_end();
    ReportExit(code);
    std::fflush(nullptr);
    context.communicator().Abort(code);
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
    LogError("",
             "[memory] out of memory; raise ulimit -v or the control group's memory.max, or "
             "use a machine with more memory");
  } catch (const std::filesystem::filesystem_error& e) {
    code = ExitCode::kDisk;
    LogError("", "[disk] {}", DescribeDiskError(e.path1().string(), "use", e.code().value()));
  } catch (const std::system_error& e) {
    // libstdc++ throws it for a thread that cannot be started, then without a text of its own, and
    // for a stream that cannot be written, then with a text.
    const bool is_thread =
        e.code() == std::errc::resource_unavailable_try_again && e.what() == e.code().message();
    code = is_thread ? ExitCode::kConfiguration : ExitCode::kDisk;
    LogError("", "[system] {}{}",
             is_thread ? "no more threads can be started; raise ulimit -u, ulimit -v or the "
                         "control group's pids.max, or use fewer --threads: "
                       : "",
             e.what());
  } catch (const std::exception& e) {
    LogError("", "{}", e.what());
  }
  return static_cast<int>(code);
}

void ReportExit(int code) {
  if (code == 0 && !exit_meaning) return;
  PrintExit(code, DescribeExit(code));
}

void SetExitMeaning(ExitCode meaning) { exit_meaning = meaning; }

}  // namespace carole::commands
