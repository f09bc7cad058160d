// The ranks of one host meet in shared memory: flags, headers and a staging area, each rank's on
// its own lines.
//
// Works on memory that a backend shares among processes (an MPI window) or threads (the heap). A
// rank that waits spins briefly and then sleeps in the kernel (futex), because on a full machine
// the core is needed by the very rank that it waits for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/transport/deadline.h"
#include "src/tensor/buffer.h"

namespace carole::collectives {

// A counter that others wait for.
struct alignas(64) Flag {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};
};

enum class Presence : int32_t { kHere, kLeft, kFailed };

// What a rank is doing, as it says itself.
struct Whereabouts {
  int64_t step = 0;
  RankPhase phase = RankPhase::kStarting;
  int32_t unused = 0;  // sent as bytes
};

// Read by others while its rank writes: phase and step may be of two moments, which is good enough.
struct SharedWhereabouts {
  std::atomic<int64_t> step{0};
  std::atomic<RankPhase> phase{RankPhase::kStarting};

  void Set(const Whereabouts& w) {
    step.store(w.step, std::memory_order_relaxed);
    phase.store(w.phase, std::memory_order_relaxed);
  }
  Whereabouts Get() const { return {.step = step.load(), .phase = phase.load()}; }
};

// One rank's part of the shared memory. Written by its rank, read by all.
struct RankSlot {
  Flag arrived;  // how often this rank has come to Sync()
  Flag decided;  // on the host's first rank: number of verdicts among hosts
  alignas(64) std::atomic<Presence> presence{Presence::kHere};
  std::atomic<int32_t> waiting_for{-1};  // by message: a rank, or -1
  std::atomic<uint32_t> waits_ended{0};  // by message, of those that took long
  SharedWhereabouts awaited;             // of that rank, as far as known
  std::atomic<int32_t> process{0};       // process id, in a namespace of such numbers:
  std::atomic<uint64_t> process_space{0};
  std::atomic<bool> aborted{false};
  alignas(64) SharedWhereabouts where;
  char failure[512] = {};  // the error's text once kFailed, cut
  alignas(64) Header
      headers[2];  // of the last two Compare(): a slow neighbor may still read the one before
  alignas(64) HeaderRange verdict;  // valid once `decided` moved
};

class NodeGroup {
 public:
  static constexpr size_t kStagingBytes = 256
                                          << 10;  // a piece of every rank stays in the second cache
  static constexpr size_t kSharedBytes = AlignUp(sizeof(RankSlot)) + kStagingBytes;

  // Puts a fresh slot into `shared`, kSharedBytes of zeroed memory, aligned to 64. Before any
  // NodeGroup is made.
  static void MakeSlot(std::byte* shared);

  // ranks: the global rank of each local rank; shared: each one's memory, which outlives this
  // object.
  NodeGroup(int local_rank, std::vector<int> ranks, std::span<std::byte* const> shared);

  // Memory of each local rank for data that does not lie in an arena, kStagingBytes each.
  std::span<std::byte* const> staging() const { return staging_; }

  // Returns when every local rank has called it as often. What a rank wrote before is visible
  // after.
  void Sync(Watch& watch);

  // Shows the header to the others and returns the verdict on all local ones. `shown`, at most
  // kMostShown bytes, is there to be read by all afterwards, until this rank compares again.
  static constexpr size_t kMostShown = kStagingBytes / 2;
  HeaderRange Compare(const Header& header, Watch& watch, std::span<const std::byte> shown = {});
  std::byte* Shown(size_t local_rank) const { return staging_[local_rank] + ShownOffset(); }

  // The first local rank hands the verdict of all hosts to the others, which wait for it.
  void Announce(const HeaderRange& verdict);
  HeaderRange AwaitAnnouncement(Watch& watch);

  // Tells the neighbors for whom this rank waits by message (-1: for nobody) and where that rank
  // was last, so that they can name it too.
  void SetWaitingFor(int rank, const Whereabouts& where);

  // What this rank does; any one thread.
  void SetWhere(const Whereabouts& where) { mine().where.Set(where); }
  // Of a neighbor, or of the rank that a neighbor waits for; nullopt of others.
  std::optional<Whereabouts> WhereIs(int rank) const;

  // From now on the others' waits for this rank fail at once; they repeat `failure`, unless that is
  // empty.
  void Leave(const std::string& failure = "");
  // From now on this rank's own waits are to fail: may be called from any thread.
  void Abort();
  bool aborted() const;

  // How the rank has ended, if it is a local one that has; else "".
  std::string WhyGone(int rank) const;

 private:
  RankSlot& mine() { return *slots_[local_rank_]; }
  // Of the last Compare(): a slow neighbor may still read what the one before showed.
  uint32_t Turn() const { return (compares_ - 1) % 2; }
  size_t ShownOffset() const { return Turn() * kMostShown; }
  void WakeAll();
  // For whom one really waits who waits for this local rank.
  int Culprit(size_t local_rank) const;
  // Of all local ranks.
  uint32_t WaitsEnded() const;
  // Waits until slot's flag has reached `target`; `missing` says for whom, at each look.
  template <typename Missing>
  void Await(Flag& flag, uint32_t target, Watch& watch, Missing missing);

  const int local_rank_;
  const std::vector<int> ranks_;
  std::vector<RankSlot*> slots_;
  std::vector<std::byte*> staging_;
  uint32_t syncs_ = 0;
  uint32_t verdicts_ = 0;
  uint32_t compares_ = 0;
  uint32_t seen_waits_ended_ = 0;
};

}  // namespace carole::collectives
