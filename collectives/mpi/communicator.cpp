#include "collectives/mpi/communicator.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>

#include "collectives/engine/engine.h"
#include "collectives/local/communicator.h"
#include "collectives/mpi/transport.h"
#include "launch/cluster/environment.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::collectives {

namespace {

MPI_Datatype TypeOf(const float*) { return MPI_FLOAT; }
MPI_Datatype TypeOf(const double*) { return MPI_DOUBLE; }

// Returns whether /dev/shm has room for `bytes` more bytes of each of `ranks` ranks. MPI would find
// out too late, with SIGBUS. 4 MB for each rank stay reserved for MPI's own files, which fill up as
// MPI needs them.
bool HasSharedMemory(size_t bytes, size_t ranks) {
  struct statvfs disk;
  if (statvfs("/dev/shm", &disk) != 0) return true;  // MPI must use another folder
  constexpr size_t kReserve = 4 << 20;
  return static_cast<size_t>(disk.f_bavail) * disk.f_frsize >
         bytes * ranks + kReserve * (ranks + 1);
}

// Ends the process if this object still exists after `seconds`. It guards MPI's own collectives: a
// frozen rank blocks the others in them forever, and only the end of the process gets them out.
class ProcessDeadline {
 public:
  ProcessDeadline(double seconds, const char* doing)
      : thread_([seconds = std::max(seconds, kLeastSeconds), doing](const std::stop_token& stop) {
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable_any never;
          // Counts second by second, so the time in which a process is suspended does not count.
          for (double waited = 0; waited < seconds; ++waited) {
            never.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
            if (stop.stop_requested()) return;
          }
          LogError("mpi", "{}: deadline: some ranks have not arrived after {:.0f} s", doing,
                   seconds);
          constexpr int kCode = static_cast<int>(ExitCode::kUnavailable);
          PrintExit(kCode, Describe(ExitCode::kUnavailable));
          std::_Exit(kCode);
        }) {}

 private:
  static constexpr double kLeastSeconds = 30;  // because processes start one after the other
  std::jthread thread_;
};

// Keeps Open MPI 4 from printing nine lines about MPI_Abort() after the error that caused it. This
// is the variable of its parameter orte_execute_quiet, which cannot be set through MPI after the
// start. Set before the start, it would hide why MPI cannot start. Open MPI 5 lacks the variable.
void SilenceMpiAbort() {
  if (void* quiet = dlsym(RTLD_DEFAULT, "orte_execute_quiet")) *static_cast<bool*>(quiet) = true;
}

// Duplicates of MPI_COMM_WORLD that return error codes.
struct Comms {
  MPI_Comm all = MPI_COMM_NULL;
  MPI_Comm host = MPI_COMM_NULL;  // the ranks of this machine, which can usually share memory
};

class MpiBackend final : public CommBackend {
 public:
  MpiBackend(const Comms& comms, double deadline_seconds)
      : deadline_seconds_(deadline_seconds), comms_(comms), transport_(comms.all) {
    std::vector<std::byte*> slots = MakeWindow(NodeGroup::kSharedBytes);
    FindTopology(!slots.empty());
    if (slots.empty()) {  // no shared memory: each rank counts as a host
      private_slot_ = Buffer(NodeGroup::kSharedBytes);
      slots = {private_slot_.data()};
    }
    NodeGroup::MakeSlot(slots[topology_.local_rank]);
    CAROLE_MPI(MPI_Barrier(comms_.all));
    node_ = std::make_unique<NodeGroup>(topology_.local_rank, topology_.local_ranks(), slots);
  }

  const Topology& topology() const override { return topology_; }
  std::span<const std::string> names() const override { return names_; }
  Transport& transport() override { return transport_; }
  NodeGroup& node() override { return *node_; }

  std::vector<std::byte*> AllocateShared(size_t bytes, Watchdog&) override {
    if (private_slot_.size() > 0) return {};
    const ProcessDeadline deadline(deadline_seconds_, "shared memory");
    return MakeWindow(bytes);
  }

  bool HasNativeAllReduce() const override { return true; }
  void NativeAllReduce(std::span<float> data) override { Native(data); }
  void NativeAllReduce(std::span<double> data) override { Native(data); }

  void StopWaiting() override { node_->Abort(); }
  void Abort(int exit_code) override {
    try {
      std::thread([exit_code] {  // another thread may be stuck in MPI and hold its locks
        std::this_thread::sleep_for(std::chrono::seconds(5));
        std::_Exit(exit_code);
      })
          .detach();
    } catch (const std::system_error&) {
      std::_Exit(exit_code);
    }
    SilenceMpiAbort();
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

  bool NeedsCollectiveShutdown() const override { return true; }
  void Shutdown(bool collective) override;

 private:
  std::vector<std::byte*> MakeWindow(size_t bytes);
  void FindTopology(bool shares_memory);

  template <typename T>
  void Native(std::span<T> data) {
    constexpr size_t kMost = INT_MAX;
    for (size_t begin = 0; begin < data.size(); begin += kMost) {
      const auto part = data.subspan(begin, std::min(kMost, data.size() - begin));
      CAROLE_MPI(MPI_Allreduce(MPI_IN_PLACE, part.data(), static_cast<int>(part.size()),
                               TypeOf(part.data()), MPI_SUM, comms_.all));
    }
  }

  const double deadline_seconds_;
  Comms comms_;
  MpiTransport transport_;
  std::vector<MPI_Win> windows_;
  Buffer private_slot_;
  Topology topology_;
  std::vector<std::string> names_;
  std::unique_ptr<NodeGroup> node_;
};

// Reserves pages for all of this memory, and charges them to this rank. Returns false if there are
// too few. Another job may have taken the room that HasSharedMemory() saw, and then the first
// access ends the process (SIGBUS). Kernels before 5.14 cannot tell, so there the memory is written
// to.
bool ReservePages(void* memory, size_t bytes) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers lack
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory) + bytes;
  if (madvise(reinterpret_cast<void*>(begin), end - begin, kPopulateWrite) == 0) return true;
  if (errno != EINVAL) return false;
  std::memset(memory, 0, bytes);
  return true;
}

// Makes a window over the ranks of the host. Returns the address of each rank's part, or an empty
// vector if memory is short.
std::vector<std::byte*> MpiBackend::MakeWindow(size_t bytes) {
  int size = 0;
  CAROLE_MPI(MPI_Comm_size(comms_.host, &size));
  int has_room = HasSharedMemory(bytes + 2 * sysconf(_SC_PAGESIZE), size) ? 1 : 0;
  CAROLE_MPI(MPI_Bcast(&has_room, 1, MPI_INT, 0, comms_.host));
  if (has_room == 0) return {};

  MPI_Info info;
  CAROLE_MPI(MPI_Info_create(&info));
  CAROLE_MPI(MPI_Info_set(info, "alloc_shared_noncontig", "true"));  // each part has its own pages
  void* mine = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  const size_t padded = bytes + Buffer::kAlignment;  // Open MPI does not align the parts
  const int status =
      MPI_Win_allocate_shared(static_cast<MPI_Aint>(padded), 1, info, comms_.host, &mine, &window);
  CAROLE_MPI(MPI_Info_free(&info));
  const auto is_true_on_all = [&](bool here) {
    int all = here ? 1 : 0;
    CAROLE_MPI(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comms_.host));
    return all == 1;
  };
  if (!is_true_on_all(status == MPI_SUCCESS)) return {};
  if (!is_true_on_all(ReservePages(mine, padded))) {
    CAROLE_MPI(MPI_Win_free(&window));
    return {};
  }
  windows_.push_back(window);
  CAROLE_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window));  // plain loads and stores from now on
  // Windows are mapped at page boundaries, so the same shift aligns a part in all processes.
  const auto address = reinterpret_cast<uintptr_t>(mine);
  const uint64_t my_shift = AlignUp(address) - address;
  std::vector<uint64_t> shifts(size);
  CAROLE_MPI(
      MPI_Allgather(&my_shift, 1, MPI_UINT64_T, shifts.data(), 1, MPI_UINT64_T, comms_.host));
  std::vector<std::byte*> parts(size);
  for (int r = 0; r < size; ++r) {
    MPI_Aint part_bytes = 0;
    int unit = 0;
    CAROLE_MPI(MPI_Win_shared_query(window, r, &part_bytes, &unit, &parts[r]));
    parts[r] += shifts[r];
    CAROLE_CHECK(reinterpret_cast<uintptr_t>(parts[r]) % Buffer::kAlignment == 0,
                 "window part {} at {}", r, static_cast<void*>(parts[r]));
  }
  return parts;
}

// All ranks gather the lowest rank of each rank's host, which identifies the host, and the host's
// name.
void MpiBackend::FindTopology(bool shares_memory) {
  struct HostOfRank {
    int first = 0;
    std::array<char, 60> host{};
  };
  int rank = 0, size = 0;
  CAROLE_MPI(MPI_Comm_rank(comms_.all, &rank));
  CAROLE_MPI(MPI_Comm_size(comms_.all, &size));
  HostOfRank mine{.first = rank};
  CAROLE_MPI(MPI_Bcast(&mine.first, 1, MPI_INT, 0, comms_.host));
  if (!shares_memory) mine.first = rank;
  gethostname(mine.host.data(), mine.host.size() - 1);
  std::vector<HostOfRank> hosts(size);
  CAROLE_MPI(MPI_Allgather(&mine, sizeof(HostOfRank), MPI_BYTE, hosts.data(), sizeof(HostOfRank),
                           MPI_BYTE, comms_.all));
  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) {
    keys.push_back(std::to_string(hosts[r].first));
    names_.push_back(fmt::format("rank {} ({})", r, hosts[r].host.data()));
  }
  topology_ = MakeTopology(rank, keys);
  CAROLE_MPI(MPI_Comm_rank(comms_.host, &topology_.machine_rank));
  CAROLE_MPI(MPI_Comm_size(comms_.host, &topology_.machine_size));
}

// Windows and MPI must end on all ranks together. If some ranks are missing, they end with the
// process instead.
void MpiBackend::Shutdown(bool collective) {
  if (!collective) return;
  const ProcessDeadline deadline(deadline_seconds_, "MPI_Finalize");
  for (MPI_Win& window : windows_) {
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
  }
  MPI_Comm_free(&comms_.host);
  MPI_Comm_free(&comms_.all);
  MPI_Finalize();
}

Comms MakeComms(int ranks_per_host) {
  Comms comms;
  CAROLE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comms.all));
  CAROLE_MPI(MPI_Comm_set_errhandler(comms.all, MPI_ERRORS_RETURN));
  int rank = 0;
  CAROLE_MPI(MPI_Comm_rank(comms.all, &rank));
  CAROLE_MPI(
      MPI_Comm_split_type(comms.all, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &comms.host));
  if (ranks_per_host > 0) {
    MPI_Comm whole = comms.host;
    int local_rank = 0;
    CAROLE_MPI(MPI_Comm_rank(whole, &local_rank));
    CAROLE_MPI(MPI_Comm_split(whole, local_rank / ranks_per_host, rank, &comms.host));
    CAROLE_MPI(MPI_Comm_free(&whole));
  }
  CAROLE_MPI(MPI_Comm_set_errhandler(comms.host, MPI_ERRORS_RETURN));
  return comms;
}

// Makes Open MPI send a segment eagerly. By default, Open MPI over TCP asks the receiver before it
// sends more than 64 KB, and the link is idle until both have polled their sockets again. Measured
// on a link of 1 Gbit/s: 105 to 113 MB/s instead of 68 to 78. The user's own settings have
// priority.
void SendSegmentsEagerly(size_t segment_bytes) {
  const std::string bytes = std::to_string(segment_bytes + 1024);  // with MPI's header
  setenv("OMPI_MCA_btl_tcp_eager_limit", bytes.c_str(), 0);
  setenv("OMPI_MCA_btl_tcp_max_send_size", bytes.c_str(), 0);
}

}  // namespace

std::unique_ptr<FullCommunicator> MakeMpiCommunicator(const CommunicatorOptions& options) {
  const std::optional<launch::RankPlacement> placement = launch::FindRankPlacement(std::getenv);
  if (!placement || !launch::NeedsMpi(*placement))
    return std::move(MakeLocalCommunicators(1, options).front());
  launch::RequirePmix(*placement);
  int is_initialized = 0;
  CAROLE_MPI(MPI_Initialized(&is_initialized));
  CAROLE_CHECK(is_initialized == 0, "a process can make only one MPI communicator");
  SendSegmentsEagerly(options.segment_bytes);
  int level = 0;
  {
    constexpr double kSeconds = 300;  // other ranks may load the program from a slow disk
    const ProcessDeadline deadline(std::max(options.deadline_seconds, kSeconds), "MPI_Init");
    CAROLE_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level));
  }
  CAROLE_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  int size = 0;
  CAROLE_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  try {
    launch::RequireWholeJob(*placement, size);
    if (level < MPI_THREAD_SERIALIZED) {
      throw ConfigError(
          "[mpi] MPI_Init_thread: no thread support: got a lower level, want "
          "MPI_THREAD_SERIALIZED; "
          "use an MPI library that was built with thread support");
    }
    std::unique_ptr<CommBackend> backend;
    {
      const ProcessDeadline deadline(options.deadline_seconds, "start");
      backend =
          std::make_unique<MpiBackend>(MakeComms(options.ranks_per_host), options.deadline_seconds);
    }
    return MakeEngine(std::move(backend), options);
  } catch (const ConfigError&) {  // every rank throws it, so all finalize together
    MPI_Finalize();
    throw;
  }
}

std::string MpiVersion() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  CAROLE_MPI(MPI_Get_library_version(text.data(), &length));
  return std::string(text.data(), length).substr(0, std::string_view(text.data()).find(','));
}

}  // namespace carole::collectives
