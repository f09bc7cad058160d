// Communicator: the collective operations that training needs, on ranges of memory, among all ranks
// of a job. full_communicator.h lists the other interfaces of a rank.
//
// Implementations: local/ (the ranks are threads of one process; for tests, and for a process that
// runs alone) and mpi/ (the ranks are processes). Both share the engine in engine/. GPU memory is
// reduced by nccl/ under the same rules (device_all_reduce.h).
//
// Rules for callers
//   - Every rank calls the same operations in the same order, with the same count and tag. Before
//     data moves, the ranks compare a header of the operation: sequence number, operation, count,
//     type, algorithm, address in an arena, and tag. If headers differ, every rank throws CommError
//     with the names of two ranks and both values.
//   - Asynchronous operations run on the communicator's own thread, in the order of the calls. All
//     calls come from one thread. The memory must stay alive and untouched until Wait() returns.
//     Several operations may be in flight.
//   - No wait lasts forever. After CommunicatorOptions::deadline_seconds Wait() throws CommError,
//     which names the operation, its tag and the missing ranks. The communicator is unusable after
//     a CommError.
//   - All ranks end with bitwise identical results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/tensor/buffer.h"

namespace carole::collectives {

// Bytes that each rank of a ring all-reduce sends, divided by the bytes of its range. NCCL's tests
// multiply with this factor to get the "bus bandwidth".
constexpr double AllReduceBusFactor(int ranks) { return 2.0 * (ranks - 1) / ranks; }

// Identifies an operation. The ranks compare tags, and errors and stall reports show them.
struct Tag {
  // Purpose of the operation, such as "gradients" or "weights". Must outlive the operation: use
  // string literals.
  std::string_view what = "";
  int64_t step = 0;
  int32_t bucket = 0;
  uint64_t plan = 0;  // hash of the bucket plan (HashOfPlan), or 0
  // Whether fp32 may travel as CommunicatorOptions::wire_dtype. True for gradients, whose rounding
  // errors average out. False for moving averages: they would stop moving once changes are smaller
  // than rounding.
  bool may_round = false;
  // Whether the caller's next work needs this sum, as in batch norm over all ranks. On a device, an
  // urgent sum need not wait for the data of earlier sums that are not urgent, such as gradients.
  bool is_urgent = false;
};

// An asynchronous operation in flight.
class Pending {
 public:
  virtual ~Pending() = default;
  // Blocks until the operation is complete. Call it at most once, from one thread. Throws the
  // operation's error.
  virtual void Wait() = 0;
  // Returns whether Wait() would return at once.
  virtual bool Done() const = 0;
};

// Memory that collectives reduce fastest, such as a window shared by the ranks of a host. Ranges
// outside of arenas work too, but need extra copies. Destroy an arena before its communicator; the
// system gets shared memory back when the communicator is destroyed.
class CommArena {
 public:
  virtual ~CommArena() = default;
  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;  // bytes
};

// One rank's connection to all ranks of the job. Operations are collective: all ranks call them in
// the same order, from one thread each. They throw CommError if ranks are gone, late, or disagree.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;  // number of this rank among the ranks of this machine
  virtual int local_size() const = 0;  // number of ranks on this machine
  virtual int num_hosts() const = 0;   // groups of ranks that share memory
  virtual const std::string& NameOf(int rank) const = 0;  // "rank 3 (host)"

  // Returns zeroed memory, aligned to Buffer::kAlignment. Collective: every rank asks for the same
  // size.
  virtual std::unique_ptr<CommArena> AllocateArena(size_t bytes) = 0;

  // Starts the sum of `data` over all ranks, in place. Sums in the precision of `data`; fp32 may be
  // rounded on the wire if tag.may_round is set.
  virtual std::unique_ptr<Pending> AllReduceAsync(std::span<float> data, const Tag& tag) = 0;
  virtual std::unique_ptr<Pending> AllReduceAsync(std::span<double> data, const Tag& tag) = 0;

  // AllReduceAsync() and Wait() in one call. Cheaper when nothing else is in flight, because no
  // thread switch is needed.
  virtual void AllReduce(std::span<float> data, const Tag& tag) = 0;
  virtual void AllReduce(std::span<double> data, const Tag& tag) = 0;

  // Sums `in` over all ranks and returns this rank's piece of the sum in `out`. `in` holds size()
  // pieces of out.size() elements; its content is unspecified afterwards. `in` and `out` must not
  // overlap. Never rounds on the wire. Blocks.
  virtual void ReduceScatter(std::span<float> in, std::span<float> out, const Tag& tag) = 0;
  virtual void ReduceScatter(std::span<double> in, std::span<double> out, const Tag& tag) = 0;

  // Copies the root's bytes to every rank. Blocks.
  virtual void Broadcast(std::span<std::byte> data, int root, const Tag& tag) = 0;

  // Gathers in.size() bytes of each rank into `out`, in the order of ranks. `out` holds size() *
  // in.size() bytes. Blocks.
  virtual void AllGather(std::span<const std::byte> in, std::span<std::byte> out,
                         const Tag& tag) = 0;

  // Sends `out` to the next rank, and receives `in` from the rank before: both have the same size
  // on every rank. Rank 0 comes after the last one. The ranges must not overlap. Blocks.
  virtual void Shift(std::span<const std::byte> out, std::span<std::byte> in, const Tag& tag) = 0;

  // Returns when every rank has called it.
  virtual void Barrier(const Tag& tag) = 0;

  // Ends the whole job at once with this exit code (MPI_Abort). With local ranks, makes every
  // rank's operations throw instead.
  virtual void Abort(int exit_code) = 0;
};

// Returns the number of ranks for which `yes` is true. Collective.
inline int CountRanks(Communicator& communicator, bool yes, const Tag& tag) {
  double count = yes ? 1 : 0;
  communicator.AllReduce(std::span(&count, 1), tag);
  return static_cast<int>(count);
}

// Returns the values of all ranks, in the order of ranks. Every rank contributes equally many.
// Collective.
template <typename T>
std::vector<T> AllGatherValues(Communicator& communicator, std::span<const T> mine,
                               const Tag& tag) {
  std::vector<T> all(mine.size() * static_cast<size_t>(communicator.size()));
  communicator.AllGather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)), tag);
  return all;
}

template <typename T>
std::vector<T> AllGather(Communicator& communicator, const T& mine, const Tag& tag) {
  return AllGatherValues(communicator, std::span(&mine, 1), tag);
}

}  // namespace carole::collectives
