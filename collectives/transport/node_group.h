// NodeGroup: the ranks of one host, which meet in shared memory. It offers a barrier, the
// comparison of operation headers, staging areas for data, and who is present.
//
// Works on memory that a backend shares among processes (an MPI window) or threads (the heap). The
// head of node_group.cpp describes the memory and the waiting.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/transport/watchdog.h"
#include "src/tensor/buffer.h"

namespace carole::collectives {

// A counter that other ranks wait for, on a cache line of its own. It wraps around.
struct alignas(64) WaitableCounter {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};  // waiting threads that must be woken
};

enum class Presence : int32_t { kPresent, kLeft, kFailed };

// The current activity of a rank, as it announced it.
struct RankActivity {
  int64_t step = 0;
  RankPhase phase = RankPhase::kStarting;
  int32_t unused = 0;  // padding, zero because activities are sent as bytes
};

// A RankActivity that other ranks read while its rank writes it. Phase and step may come from
// different moments, which is good enough for messages.
struct SharedRankActivity {
  std::atomic<int64_t> step{0};
  std::atomic<RankPhase> phase{RankPhase::kStarting};

  void Set(const RankActivity& a) {
    step.store(a.step, std::memory_order_relaxed);
    phase.store(a.phase, std::memory_order_relaxed);
  }
  RankActivity Get() const { return {.step = step.load(), .phase = phase.load()}; }
};

// One rank's part of the shared memory. Its rank writes it, all local ranks read it.
struct RankSlot {
  WaitableCounter barriers;  // calls of Barrier() by this rank
  WaitableCounter results;   // calls of PublishResult(); only the host's first rank counts
  alignas(64) std::atomic<Presence> presence{Presence::kPresent};
  std::atomic<int32_t> waiting_for{-1};  // rank of another host whose message is awaited, or -1
  std::atomic<uint32_t> waits_ended{0};  // long waits for messages of other hosts that ended
  SharedRankActivity awaited_activity;   // of the rank `waiting_for`, as far as known
  std::atomic<int32_t> pid{0};           // process id in pid_namespace
  std::atomic<uint64_t> pid_namespace{0};
  std::atomic<bool> aborted{false};
  alignas(64) SharedRankActivity activity;
  char failure[512] = {};  // text of the error once kFailed, truncated
  // Headers of the last two comparisons: a slow local rank may still read the one before.
  alignas(64) OperationHeader headers[2];
  alignas(64) HeaderRange result;  // of all hosts; valid once `results` moved
};

// One local rank's view of the group. Used by one thread at a time unless a function says
// otherwise. Functions that wait throw CommError if `watchdog` does.
class NodeGroup {
 public:
  // Pieces of this size of all ranks stay in the second-level cache.
  static constexpr size_t kStagingBytes = 256 << 10;
  static constexpr size_t kSharedBytes = AlignUp(sizeof(RankSlot)) + kStagingBytes;

  // Constructs a rank's slot in `shared`: kSharedBytes of zeroed memory, aligned to 64. Must be
  // done for all local ranks before any NodeGroup is made.
  static void MakeSlot(std::byte* shared);

  // ranks[l] is the global rank of local rank l, and shared[l] its memory as this process sees it.
  // The memory must outlive this object.
  NodeGroup(int local_rank, std::vector<int> ranks, std::span<std::byte* const> shared);

  // The staging areas of all local ranks, kStagingBytes each, for data that is not in an arena.
  std::span<std::byte* const> staging() const { return staging_; }

  // Returns when every local rank has called it as often as this one. What a rank wrote before its
  // call is visible to all afterwards.
  void Barrier(Watchdog& watchdog);

  // Compares headers among the local ranks: shows `header` to the others and returns the range of
  // all local headers. Afterwards all local ranks can read each rank's `inline_data` (at most
  // kMaxInlineBytes) with InlineData(), until they compare headers again.
  static constexpr size_t kMaxInlineBytes = kStagingBytes / 2;
  HeaderRange CompareHeaders(const OperationHeader& header, Watchdog& watchdog,
                             std::span<const std::byte> inline_data = {});
  std::byte* InlineData(size_t local_rank) const { return staging_[local_rank] + InlineOffset(); }

  // The first local rank publishes the range of all hosts' headers; the others wait for it.
  void PublishResult(const HeaderRange& result);
  HeaderRange AwaitResult(Watchdog& watchdog);

  // Tells the local ranks which rank of another host this rank is waiting for (-1: none), and what
  // that rank was doing, so that they can name it too.
  void SetWaitingFor(int rank, const RankActivity& activity);

  // Announces what this rank is doing. Callable from any one thread.
  void SetActivity(const RankActivity& activity) { mine().activity.Set(activity); }
  // Returns the activity of a local rank, or of a remote rank that a local rank is waiting for;
  // nullopt for other ranks.
  std::optional<RankActivity> ActivityOf(int rank) const;

  // Marks this rank as gone. The others' waits for it fail at once, with `failure` in their errors
  // if it is not empty.
  void Leave(const std::string& failure = "");
  // Makes this rank's own waits fail. Callable from any thread.
  void Abort();
  bool aborted() const;

  // Returns how a local rank has left the job; "" if it has not, or is not local.
  std::string DepartureReason(int rank) const;

 private:
  RankSlot& mine() { return *slots_[local_rank_]; }
  // Which of the two headers, and of the two halves of the staging area, the last comparison used.
  // They alternate because a slow local rank may still read the other one.
  uint32_t BufferIndex() const { return (compares_ - 1) % 2; }
  size_t InlineOffset() const { return BufferIndex() * kMaxInlineBytes; }
  void WakeAll();
  // Returns the rank to blame if `local_rank` has not come: the remote rank that it is waiting for,
  // or itself.
  int FindStalledRank(size_t local_rank) const;
  uint32_t WaitsEnded() const;  // sum over all local ranks
  // Waits until `counter` has reached `target`. While it waits, calls check(watchdog) repeatedly,
  // which gives the missing ranks to the watchdog.
  template <typename Check>
  void Await(WaitableCounter& counter, uint32_t target, Watchdog& watchdog, Check check);

  const int local_rank_;
  const std::vector<int> ranks_;
  std::vector<RankSlot*> slots_;
  std::vector<std::byte*> staging_;
  uint32_t barriers_ = 0;
  uint32_t results_ = 0;
  uint32_t compares_ = 0;
  uint32_t seen_waits_ended_ = 0;
};

}  // namespace carole::collectives
