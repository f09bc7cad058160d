#include "collectives/mpi/communicator.h"

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

// Whether the system's shared memory has room for so many more bytes of each of a host's ranks. MPI
// would find out too late, with SIGBUS; and it fills its own files, 4 MB for each, as it needs
// them.
bool HasSharedMemory(size_t bytes, size_t ranks) {
  struct statvfs disk;
  if (statvfs("/dev/shm", &disk) != 0) return true;  // MPI knows another place
  constexpr size_t kReserve = 4 << 20;
  return static_cast<size_t>(disk.f_bavail) * disk.f_frsize >
         bytes * ranks + kReserve * (ranks + 1);
}

// While it lives MPI's own collectives have to end, in which a rank that is frozen holds up the
// others forever: nothing but the end of the process gets out of there.
class Deadline {
 public:
  Deadline(double seconds, const char* doing)
      : thread_([seconds = std::max(seconds, kLeastSeconds), doing](const std::stop_token& stop) {
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable_any never;
          // Second by second: who was suspended has not waited.
          for (double waited = 0; waited < seconds; ++waited) {
            never.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
            if (stop.stop_requested()) return;
          }
          LogError("mpi", "{}: deadline: not all ranks came along in {:.0f} s", doing, seconds);
          constexpr int kCode = static_cast<int>(ExitCode::kUnavailable);
          PrintExit(kCode, Describe(ExitCode::kUnavailable));
          std::_Exit(kCode);
        }) {}

 private:
  static constexpr double kLeastSeconds = 30;  // processes start one after the other
  std::jthread thread_;
};

// Duplicates of MPI_COMM_WORLD that return error codes.
struct Comms {
  MPI_Comm all = MPI_COMM_NULL;
  MPI_Comm host = MPI_COMM_NULL;  // the ranks of this machine, which mostly can share memory
};

class MpiBackend final : public CommBackend {
 public:
  MpiBackend(const Comms& comms, double deadline_seconds)
      : deadline_seconds_(deadline_seconds), comms_(comms), transport_(comms.all) {
    std::vector<std::byte*> slots = MakeWindow(NodeGroup::kSharedBytes);
    FindTopology(!slots.empty());
    if (slots.empty()) {  // every rank a host of its own
      lone_slot_ = Buffer(NodeGroup::kSharedBytes);
      slots = {lone_slot_.data()};
    }
    NodeGroup::MakeSlot(slots[topology_.local_rank]);
    CAROLE_MPI(MPI_Barrier(comms_.all));
    node_ = std::make_unique<NodeGroup>(topology_.local_rank, topology_.neighbors(), slots);
  }

  const Topology& topology() const override { return topology_; }
  std::span<const std::string> names() const override { return names_; }
  Transport& transport() override { return transport_; }
  NodeGroup& node() override { return *node_; }

  std::vector<std::byte*> AllocateShared(size_t bytes, Watch&) override {
    if (lone_slot_.size() > 0) return {};
    const Deadline deadline(deadline_seconds_, "shared memory");
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
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

  bool NeedsCollectiveShutdown() const override { return true; }
  void End(bool together) override;

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
  Buffer lone_slot_;
  Topology topology_;
  std::vector<std::string> names_;
  std::unique_ptr<NodeGroup> node_;
};

// Whether there are pages for all of it, which are taken from this rank's memory: another job may
// have had the room that was seen, and then a mere touch ends the process (SIGBUS). Kernels before
// 5.14 do not tell, so there it is touched.
bool TakePages(void* memory, size_t bytes) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers lack
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory) + bytes;
  if (madvise(reinterpret_cast<void*>(begin), end - begin, kPopulateWrite) == 0) return true;
  if (errno != EINVAL) return false;
  std::memset(memory, 0, bytes);
  return true;
}

// One window over the ranks of the host; the address of each rank's part. Empty when memory is
// short.
std::vector<std::byte*> MpiBackend::MakeWindow(size_t bytes) {
  int size = 0;
  CAROLE_MPI(MPI_Comm_size(comms_.host, &size));
  int has_room = HasSharedMemory(bytes + 2 * sysconf(_SC_PAGESIZE), size) ? 1 : 0;
  CAROLE_MPI(MPI_Bcast(&has_room, 1, MPI_INT, 0, comms_.host));
  if (has_room == 0) return {};

  MPI_Info info;
  CAROLE_MPI(MPI_Info_create(&info));
  CAROLE_MPI(MPI_Info_set(info, "alloc_shared_noncontig", "true"));  // each part on its own pages
  void* mine = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  const size_t padded = bytes + Buffer::kAlignment;  // Open MPI aligns to nothing
  const int status =
      MPI_Win_allocate_shared(static_cast<MPI_Aint>(padded), 1, info, comms_.host, &mine, &window);
  CAROLE_MPI(MPI_Info_free(&info));
  const auto on_all = [&](bool here) {
    int all = here ? 1 : 0;
    CAROLE_MPI(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comms_.host));
    return all == 1;
  };
  if (!on_all(status == MPI_SUCCESS)) return {};
  if (!on_all(TakePages(mine, padded))) {
    CAROLE_MPI(MPI_Win_free(&window));
    return {};
  }
  windows_.push_back(window);
  CAROLE_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window));  // plain loads and stores from now on
  // Windows are mapped at pages, so what aligns a part in one process aligns it in all.
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

// Each rank says the lowest rank of its host, and the host's name.
void MpiBackend::FindTopology(bool shares_memory) {
  struct Place {
    int first = 0;
    std::array<char, 60> host{};
  };
  int rank = 0, size = 0;
  CAROLE_MPI(MPI_Comm_rank(comms_.all, &rank));
  CAROLE_MPI(MPI_Comm_size(comms_.all, &size));
  Place mine{.first = rank};
  CAROLE_MPI(MPI_Bcast(&mine.first, 1, MPI_INT, 0, comms_.host));
  if (!shares_memory) mine.first = rank;
  gethostname(mine.host.data(), mine.host.size() - 1);
  std::vector<Place> places(size);
  CAROLE_MPI(MPI_Allgather(&mine, sizeof(Place), MPI_BYTE, places.data(), sizeof(Place), MPI_BYTE,
                           comms_.all));
  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) {
    keys.push_back(std::to_string(places[r].first));
    names_.push_back(fmt::format("rank {} ({})", r, places[r].host.data()));
  }
  topology_ = MakeTopology(rank, keys);
  CAROLE_MPI(MPI_Comm_rank(comms_.host, &topology_.machine_rank));
  CAROLE_MPI(MPI_Comm_size(comms_.host, &topology_.machine_size));
}

// Windows and MPI end collectively; if the others do not come along, the process's exit ends them.
void MpiBackend::End(bool together) {
  if (!together) return;
  const Deadline deadline(deadline_seconds_, "the end of MPI");
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

// Open MPI over TCP asks the receiver before it sends more than 64 KB, and stands still until both
// have looked at their sockets again. A segment goes at once instead: on a link of 1 Gbit/s 105 to
// 113 MB/s rather than 68 to 78. The user's own setting wins.
void SendSegmentsAtOnce(size_t segment_bytes) {
  const std::string bytes = std::to_string(segment_bytes + 1024);  // and MPI's header
  setenv("OMPI_MCA_btl_tcp_eager_limit", bytes.c_str(), 0);
  setenv("OMPI_MCA_btl_tcp_max_send_size", bytes.c_str(), 0);
}

}  // namespace

std::unique_ptr<Communicator> MakeMpiCommunicator(const CommunicatorOptions& options) {
  const std::optional<launch::RankPlacement> place = launch::FindRankPlacement(std::getenv);
  if (!place || !launch::NeedsMpi(*place))
    return std::move(MakeLocalCommunicators(1, options).front());
  launch::RequirePmix(*place);
  int is_initialized = 0;
  CAROLE_MPI(MPI_Initialized(&is_initialized));
  CAROLE_CHECK(is_initialized == 0, "MPI serves one communicator in a process's life");
  SendSegmentsAtOnce(options.segment_bytes);
  int level = 0;
  {
    constexpr double kSeconds = 300;  // loading the program from a slow disk is no fault
    const Deadline deadline(std::max(options.deadline_seconds, kSeconds), "MPI_Init");
    CAROLE_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level));
  }
  CAROLE_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  int size = 0;
  CAROLE_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  try {
    launch::RequireWholeJob(*place, size);
    if (level < MPI_THREAD_SERIALIZED) {
      throw ConfigError(
          "[mpi] MPI_Init_thread: got no support of threads, want MPI_THREAD_SERIALIZED");
    }
    std::unique_ptr<CommBackend> backend;
    {
      const Deadline deadline(options.deadline_seconds, "start");
      backend =
          std::make_unique<MpiBackend>(MakeComms(options.ranks_per_host), options.deadline_seconds);
    }
    return MakeEngine(std::move(backend), options);
  } catch (const ConfigError&) {  // the same on every rank
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
