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
#include <span>
#include <string>
#include <vector>

#include "collectives/contract.h"

namespace carole::collectives {

// A counter that others wait for.
struct alignas(64) Flag {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};
};

enum class Presence : int32_t { kHere, kLeft, kFailed };

// One rank's part of the shared memory. Written by its rank, read by all.
struct RankSlot {
  Flag arrived;  // how often this rank has come to Sync()
  Flag decided;  // on the host's first rank: number of verdicts among hosts
  alignas(64) std::atomic<Presence> presence{Presence::kHere};
  std::atomic<int32_t> waiting_for{-1};  // rank of another host, or -1
  std::atomic<int32_t> process{0};       // process id
  std::atomic<bool> aborted{false};
  char failure[512] = {};  // the error's text once kFailed, cut
  alignas(64) Header
      headers[2];  // of the last two Compare(): a slow neighbour may still read the one before
  alignas(64) Verdict verdict;  // valid once `decided` moved
};

class NodeGroup {
 public:
  static constexpr size_t kStagingBytes = 256
                                          << 10;  // a piece of every rank stays in the second cache
  static constexpr size_t kSharedBytes = (sizeof(RankSlot) + 63) / 64 * 64 + kStagingBytes;

  // Puts a fresh slot into `shared`, kSharedBytes of zeroed memory, aligned to 64. Before any
  // NodeGroup is made.
  static void MakeSlot(std::byte* shared);

  // ranks: the global rank of each local rank; shared: each one's memory, which outlives this
  // object.
  NodeGroup(int local_rank, std::vector<int> ranks, std::span<std::byte* const> shared);

  int local_rank() const { return local_rank_; }
  int size() const { return static_cast<int>(slots_.size()); }

  // Memory of each local rank for data that does not lie in an arena, kStagingBytes each.
  std::span<std::byte* const> staging() const { return staging_; }

  // Returns when every local rank has called it as often. What a rank wrote before is visible
  // after.
  void Sync(Watch& watch);

  // Shows the header to the others and returns the verdict on all local ones.
  Verdict Compare(const Header& header, Watch& watch);

  // The first local rank hands the verdict of all hosts to the others, which wait for it.
  void Announce(const Verdict& verdict);
  Verdict AwaitAnnouncement(Watch& watch);

  // Tells the neighbours for whom the first local rank waits, so that they can name it too.
  void SetWaitingFor(int rank) { mine().waiting_for.store(rank, std::memory_order_relaxed); }

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
  void WakeAll();
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
};

}  // namespace carole::collectives
